package gen_test

import (
	"path"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// nullIsAValue are the optional members of requests of which null says something.
var nullIsAValue = []string{"UpdateCaseRequest.expires_at", "UpdateWebhookEndpointRequest.description"}

// Clients that write every member say null for those they do not set. The server takes
// it for leaving them out, and the document has to allow it. It allows it of all but
// objects with members of their own: of one that may be null some generators make a
// class with another name.
func TestOptionalMembersOfRequestsMayBeNull(t *testing.T) {
	t.Parallel()
	operations(t, func(t *testing.T, _ *openapi3.T, _, _ string, op *openapi3.Operation) {
		if op.RequestBody == nil {
			return
		}
		var check func(ref *openapi3.SchemaRef)
		check = func(ref *openapi3.SchemaRef) {
			name, s := path.Base(ref.Ref), ref.Value
			if name == "GuildRecord" { // no record has all its members
				return
			}
			for member, is := range s.Properties {
				object := is.Value.Type.Is(openapi3.TypeObject) && is.Value.Properties != nil
				absent := is.Value.Nullable && is.Value.Extensions["x-null"] == "absent"
				place := name + "." + member
				if !slices.Contains(s.Required, member) && !object && !absent && !slices.Contains(nullIsAValue, place) {
					t.Errorf("%s is optional, but the document does not say `nullable: true` and `x-null: absent` of it", place)
				}
				check(is)
			}
			if s.Items != nil {
				check(s.Items)
			}
		}
		check(op.RequestBody.Value.Content["application/json"].Schema)
	})
}
