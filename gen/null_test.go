package gen_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Some clients write every member and send null for those without a value. The server ignores such
// a null, and the schema has to allow it. Objects with members of their own are not checked: for a
// nullable object some generators make a second class. GuildRecord is not checked because it has
// the members of all kinds of records.
func TestOptionalMembersOfRequestsMayBeNull(t *testing.T) {
	t.Parallel()
	operations(t, func(t *testing.T, _ *openapi3.T, _, _ string, op *openapi3.Operation) {
		if op.RequestBody == nil {
			return
		}
		var check func(ref *openapi3.SchemaRef)
		check = func(ref *openapi3.SchemaRef) {
			name, s := path.Base(ref.Ref), ref.Value
			if name == "GuildRecord" {
				return
			}
			for member, is := range s.Properties {
				object := is.Value.Type.Is(openapi3.TypeObject) && is.Value.Properties != nil
				if !slices.Contains(s.Required, member) && !object && !is.Value.Nullable {
					t.Errorf("%s.%s is optional, but the document does not say `nullable: true` of it", name, member)
				}
				if is.Value.Extensions["x-null-is-value"] == true && !strings.Contains(is.Value.Description, "null ") {
					t.Errorf("the description of %s.%s does not say what null does", name, member)
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

// notCleared are the members of records that null does not clear, and why.
var notCleared = map[string]string{
	"joined_at": "it only rises, so null says nothing",
	"left_at":   "it only rises, so null says nothing",
	"metadata":  "null clears single names, and says nothing of all",
	"author_id": "it says who makes the change and is no member of the thing",
}

// A record that has null for a member clears the member. Without x-null-is-value the server takes
// the member as left out: it answers that the record is stored, and the old value stays.
func TestNullInARecordIsAValue(t *testing.T) {
	t.Parallel()
	for name, s := range document(t).Components.Schemas {
		if !strings.HasPrefix(name, "Record") && name != "GuildRecord" {
			continue
		}
		for member, is := range s.Value.Properties {
			_, kept := notCleared[member]
			if is.Value.Nullable && is.Value.Extensions["x-null-is-value"] != true && !kept {
				t.Errorf("%s.%s may be null, which is not a value of it (x-null-is-value)", name, member)
			}
		}
	}
}
