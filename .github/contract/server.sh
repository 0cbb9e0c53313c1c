# Sourced by the scripts that need a running server: start_server builds the
# program, starts it with demo data on free ports, exports where it is and who
# may call it, and stops it when the script ends.

state=$(mktemp -d)
server=
stop_server() {
	[ -z "$server" ] || { kill -INT "$server" 2>/dev/null && wait "$server" || true; }
	rm -rf "$state"
}
trap stop_server EXIT

start_server() { # the variables of the environment are its settings
	(cd "$root" && go build -o "$state/guildhall" ./cmd/guildhall)
	: >"$state/out" # said may look before the server's shell has made it
	"$state/guildhall" dev --dir "$state/dev" --https-listen 127.0.0.1:0 --http-listen off --ops-listen 127.0.0.1:0 \
		>"$state/out" 2>"$state/log" &
	server=$!
	local tries=600
	while [ -z "$(said Token)" ]; do
		kill -0 "$server" 2>/dev/null && [ $((tries--)) -gt 0 ] || {
			echo "The server did not start:" >&2
			cat "$state/log" >&2
			exit 1
		}
		sleep 0.2
	done
	GUILDHALL_URL=$(said API) GUILDHALL_TOKEN=$(said Token) GUILDHALL_CA=$(said 'CA file')
	export GUILDHALL_URL GUILDHALL_TOKEN GUILDHALL_CA
}

said() { # LABEL: what the server has printed beside it
	sed -n "s/^  $1  *//p" "$state/out"
}

need() { # PROGRAM PURPOSE
	command -v "$1" >/dev/null || { echo "$2 needs $1, which is not here." >&2; exit 1; }
}

python_packages() { # installs requirements.txt into .venv, once
	need python3 "$1"
	[ .venv/requirements.txt -nt requirements.txt ] || {
		python3 -m venv .venv
		.venv/bin/pip install --quiet --requirement requirements.txt
		cp requirements.txt .venv/
	}
}

node_packages() { # installs what the lock file pins, once
	need npm "$1"
	if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
		npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	fi
}
