package embedded

import (
	"context"
	"io"
	"os/exec"

	"guildhall/internal/base/fault"
)

// guardScript waits for a line on its standard input. The line means that the server was stopped in
// order. The end of the input without it means that the parent process died; then the guard stops
// the server.
const guardScript = `
read -r line && exit 0
pid=$(head -n 1 "$1/postmaster.pid" 2>/dev/null) || exit 0
kill -s "$2" "$pid" 2>/dev/null
n=0
while [ -e "$1/postmaster.pid" ] && kill -0 "$pid" 2>/dev/null && [ $n -lt 300 ]; do sleep 0.1; n=$((n + 1)); done
[ -z "$3" ] || rm -rf "$3"
[ -z "$4" ] || rm -rf "$4"
`

// startGuard starts the guard process of s. It is a shell, because it must outlive the process
// whose death it waits for.
func startGuard(ctx context.Context, s *Server, run *account) (io.WriteCloser, error) {
	signal, folder := "INT", ""
	if s.temporary {
		signal, folder = "QUIT", s.Folder
	}
	// The guard must outlive ctx.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", guardScript, "guard", s.data, signal, folder, s.socket)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), run.attributes()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fault.Wrap(err, "start the server's guard")
	}
	go func() { _ = cmd.Wait() }() // reaps the process; its result does not matter
	return in, nil
}
