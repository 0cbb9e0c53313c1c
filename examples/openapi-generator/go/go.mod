module guildhall/examples/openapi-generator

go 1.26.0

require (
	github.com/GIT_USER_ID/GIT_REPO_ID v0.0.0
	github.com/standard-webhooks/standard-webhooks/libraries v0.0.1
)

// Where the generator, left to its defaults, says that its package is.
replace github.com/GIT_USER_ID/GIT_REPO_ID => ./generated
