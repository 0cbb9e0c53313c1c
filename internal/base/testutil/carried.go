package testutil

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"
)

// WantCarried checks that show carries every member of a row: it fails the test for each member of
// the row that the result lacks or shows with another value, and for each member of the result that
// no member of the row explains. names lists the members that only one of the two has. show gets a
// row in which every field has a distinct value.
func WantCarried[Row any](t testing.TB, show func(Row) any, names ...string) {
	t.Helper()
	var row Row
	n := int64(0)
	fill(reflect.ValueOf(&row).Elem(), &n)
	has, shown := Object(t, row), Object(t, show(row))
	for name, value := range has {
		if !slices.Contains(names, name) && !reflect.DeepEqual(shown[name], value) {
			t.Errorf("%T.%s is %v and shown as %v", row, name, value, shown[name])
		}
	}
	for name, value := range shown {
		if _, ok := has[name]; !ok && !slices.Contains(names, name) {
			t.Errorf("%s is shown as %v and no member of %T", name, value, row)
		}
	}
}

// Object returns v, which must be an object, as decoded from its JSON.
func Object(t testing.TB, v any) (m map[string]any) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// fill sets each field to a distinct value.
func fill(v reflect.Value, n *int64) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		if v.CanAddr() && v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(*n, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		name, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(name, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(name, value)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(*n)
	case reflect.Uint8:
		v.SetUint(uint64(*n))
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic(fmt.Sprintf("testutil: a row has a field of kind %s", v.Kind()))
	}
}
