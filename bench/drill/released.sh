# Builds the program $1 of the last release, or of the commit or tag $2, from the history
# of the checkout: of the newest tagged release that does not hold what is checked out, or
# of the first release as long as none is tagged. Exits with 3 where that is not there.
root=$(git rev-parse --show-toplevel) || exit 3
release=$2
[ -n "$release" ] || release=$(git tag --list 'v*' --sort=-version:refname --no-contains HEAD | head -n 1)
[ -n "$release" ] || release=$(git log --format=%H --max-count=1 --grep='^Release the first version of the contract$')
[ -n "$release" ] || exit 3
commit=$(git rev-parse --verify "$release^{commit}")
mkdir "$1.source"
git -C "$root" archive "$commit" | tar -x -C "$1.source"
cd "$1.source"
go build -buildvcs=false -ldflags "-s -w -X main.version=$(echo "$commit" | cut -c1-12)" -o "$1" ./cmd/guildhall
