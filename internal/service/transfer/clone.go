package transfer

import "reflect"

// clone returns a copy of r whose pointers, slices and maps are copied too, so that decoding JSON
// into the copy does not change r.
func clone[R any](r R) R {
	v := reflect.ValueOf(&r).Elem()
	if v.Kind() == reflect.Struct {
		apart(v)
	}
	return r
}

func apart(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.CanSet() {
			continue
		}
		switch f.Kind() {
		case reflect.Pointer:
			if !f.IsNil() {
				p := reflect.New(f.Type().Elem())
				p.Elem().Set(f.Elem())
				f.Set(p)
			}
		case reflect.Slice:
			if !f.IsNil() {
				f.Set(reflect.AppendSlice(reflect.MakeSlice(f.Type(), 0, f.Len()), f))
			}
		case reflect.Map:
			if !f.IsNil() {
				m := reflect.MakeMapWithSize(f.Type(), f.Len())
				for _, k := range f.MapKeys() {
					m.SetMapIndex(k, f.MapIndex(k))
				}
				f.Set(m)
			}
		case reflect.Struct:
			apart(f)
		default: // values without pointers
		}
	}
}
