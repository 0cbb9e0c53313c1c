package rig

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Node is a running `guildhall serve` behind a proxy, as which the run presents itself.
type Node struct {
	HTTPS, HTTP, Ops string // addresses of the node's listeners
	PID              int
	Stop             func() error // stops the server with SIGTERM, and after 45 s by force

	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when the process has ended
}

var readyLine = regexp.MustCompile(`"msg":"ready","https":"([^"]*)","http":"([^"]+)","ops":"([^"]+)"`)

// Serve starts a server without rate limits that may send webhooks to this machine, with further
// settings, and waits until it is ready. The server stops at the end of the run; its log goes to a
// file, as in production.
func (p *Place) Serve(env ...string) *Node {
	n := &Node{ended: make(chan struct{}), log: filepath.Join(p.Folder(), "log"), cmd: p.Command("serve")}
	log, err := os.Create(n.log)
	p.Must(err)
	defer log.Close()
	n.cmd.Env = append(append(n.cmd.Env,
		"GUILDHALL_HTTP_LISTEN=127.0.0.1:0", "GUILDHALL_OPS_LISTEN=127.0.0.1:0", "GUILDHALL_TRUSTED_PROXIES=127.0.0.1/32",
		"GUILDHALL_RATE_READ=off", "GUILDHALL_RATE_WRITE=off", "GUILDHALL_WEBHOOK_ALLOW="+Loopback), env...)
	n.cmd.Stdout, n.cmd.Stderr = log, log
	p.Must(n.cmd.Start())
	n.PID = n.cmd.Process.Pid
	go func() {
		_ = n.cmd.Wait() // the exit status does not matter for the measurement
		close(n.ended)
	}()
	n.Stop = sync.OnceValue(n.stop)
	p.Cleanup(n.Stop)
	ready := p.Await(2*time.Minute, func() bool {
		select {
		case <-n.ended:
			return true
		default:
			return readyLine.MatchString(n.Log())
		}
	})
	at := readyLine.FindStringSubmatch(n.Log())
	p.Need(ready && at != nil, "the server is not ready: %s", n.Log())
	n.HTTPS, n.HTTP, n.Ops = at[1], at[2], at[3]
	return n
}

// Log returns what the server has logged so far.
func (n *Node) Log() string {
	text, err := os.ReadFile(n.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Kill sends the server SIGKILL.
func (n *Node) Kill() error {
	err := n.cmd.Process.Kill()
	<-n.ended
	return err
}

// Restart kills a node and starts another at its address.
func (p *Place) Restart(n *Node) *Node {
	p.Must(n.Kill())
	return p.Serve("GUILDHALL_HTTP_LISTEN=" + n.HTTP)
}

func (n *Node) stop() error {
	_ = n.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	kill := time.AfterFunc(45*time.Second, func() { _ = n.cmd.Process.Kill() })
	defer kill.Stop()
	<-n.ended
	return nil
}

// Ready reports whether /readyz responds with 200.
func (n *Node) Ready(ctx context.Context) bool {
	_, err := n.get(ctx, "/readyz")
	return err == nil
}

// Metric is the sum of the metrics that begin with this name and these labels; 0 when
// there is none.
func (n *Node) Metric(r *Run, name string) (sum float64) {
	text, err := n.get(r, "/metrics")
	r.Must(err)
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(name)+`\S* (\S+)$`).FindAllSubmatch(text, -1) {
		value, err := strconv.ParseFloat(string(m[1]), 64)
		r.Must(err)
		sum += value
	}
	return sum
}

// get sends a request to the operators' listener. Any status but 200 is an error.
func (n *Node) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Ops+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s is answered with %s", path, res.Status)
	}
	return text, err
}

// Resident returns the server's resident memory in MB.
func (n *Node) Resident() int { return n.memory("VmRSS:") }

// Peak returns the largest resident memory in MB so far.
func (n *Node) Peak() int { return n.memory("VmHWM:") }

func (n *Node) memory(name string) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID)) // empty without /proc
	_, rest, _ := strings.Cut(string(text), name)
	kb := 0
	_, _ = fmt.Sscan(rest, &kb)
	return kb >> 10
}

// CPU returns the CPU time that the server has used.
func (n *Node) CPU() time.Duration { return computed(strconv.Itoa(n.PID)) }

// Computed is the time that the server's own threads have spent computing, to the
// microsecond; 0 where there is no /proc.
func (n *Node) Computed() (spent time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", n.PID))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread) // a thread may have ended
		ns, _, _ := strings.Cut(string(text), " ")
		one, _ := strconv.ParseInt(ns, 10, 64) // the system has written it
		spent += time.Duration(one)
	}
	return spent
}

// CPU returns the CPU time that Postgres has used.
func (p *Place) CPU() time.Duration {
	var backend int
	p.Get(&backend, `SELECT pg_backend_pid()`)
	if columns := stat(fmt.Sprintf("/proc/%d", backend)); columns != nil {
		return computed(columns[1]) // the parent's process id
	}
	return 0
}

// computed returns the CPU time of a process and its children, including those that have ended.
// Linux counts it in hundredths of a second.
func computed(pid string) time.Duration {
	hundredths := 0
	processes, _ := filepath.Glob("/proc/[0-9]*") // empty without /proc
	for _, process := range processes {
		columns := stat(process)
		times := []int{11, 12} // columns of the process's own time
		if process == "/proc/"+pid {
			times = []int{11, 12, 13, 14} // and of children that have ended
		} else if columns == nil || columns[1] != pid {
			continue
		}
		for _, i := range times {
			n, _ := strconv.Atoi(columns[i]) // cannot fail: the kernel has written the number
			hundredths += n
		}
	}
	return time.Duration(hundredths) * time.Second / 100
}

// stat returns the columns of /proc/PID/stat from the third, the state, on, or nil if there is no
// such process.
func stat(process string) []string {
	text, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return nil
	}
	// The second column is a name in parentheses that may contain anything.
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}
