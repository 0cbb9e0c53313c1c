package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"guildhall/internal/service/guildfile"
)

// stories loads the demo guild and has clients of examples/ live through their story
// in it, on a server. A tool that a client's language needs and that is not here makes
// its story fail.
func (p place) stories(ctx context.Context, r *report, s *server, ca string, names []string) error {
	if err := p.load(ctx, guildfile.Demo); err != nil || len(names) == 0 {
		return err
	}
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	tokens, err := p.tokens(ctx, guildfile.DemoGuild, 1)
	if err != nil {
		return err
	}
	for _, name := range names {
		cmd := exec.CommandContext(ctx, filepath.Join(root, "examples", "run.sh"), name)
		cmd.Env = append(os.Environ(), "GUILDHALL_URL=https://"+s.HTTPS+"/api/v1", "GUILDHALL_TOKEN="+tokens[0], "GUILDHALL_CA="+ca)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		said := ""
		if err != nil {
			said = fmt.Sprintf(": %v\n%s", err, out)
		}
		r.hold(err == nil, "the story of the client %s, in %.0f s%s", name, time.Since(began).Seconds(), said)
	}
	return nil
}
