package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"go.yaml.in/yaml/v3"

	"guildhall/internal/base/testutil"
)

const deployFolder = "../../deploy"

// ruleFile is a file of Prometheus alerts.
type ruleFile struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Annotations struct{ Summary, Runbook string }
		}
	}
}

func rules(t *testing.T) (all ruleFile) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployFolder, "prometheus", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// boardExpressions returns the expressions of the Grafana dashboard.
func boardExpressions(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployFolder, "grafana", "guildhall.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b((?:guildhall|process)_[a-z_]+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(=~|=|!~|!=)\s*"([^"]*)"`)
	// withoutSeries lists metrics that have no series in this test, each with the reason.
	withoutSeries = map[string]string{
		"guildhall_db_replication_lag_seconds":         "there is no standby: TestReplicationLag",
		"guildhall_webhook_overflow_timestamp_seconds": "no endpoint has lost a delivery: TestMetricsShowTheBacklogByState",
	}
	// laterValues lists labels whose values appear only with the events they count.
	laterValues = map[string]bool{"status": true}
)

// Every metric in the alerts and the Grafana dashboard exists, with the labels and values that they
// select.
func TestAlertsAndBoardNameWhatThereIs(t *testing.T) {
	t.Parallel()
	s := serve(t, withGuild(t), "GUILDHALL_REDIS_URL=redis://"+miniredis.RunT(t).Addr(),
		"GUILDHALL_DISCORD_TOKEN=x", "GUILDHALL_DISCORD_URL=http://127.0.0.1:1")
	if res, body := s.pay(t, s.token); res.StatusCode != 200 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	var expressions []string
	for _, g := range rules(t).Groups {
		for _, r := range g.Rules {
			expressions = append(expressions, r.Expr)
		}
	}
	expressions = append(expressions, boardExpressions(t)...)
	if len(expressions) < 40 {
		t.Fatalf("only %d expressions were found", len(expressions))
	}
	// The delivery gauges appear once the worker has started.
	testutil.Eventually(t, "the gauges are there", func() bool {
		return strings.Contains(s.metricsText(t), `guildhall_webhook_endpoints{state="disabled"}`)
	})
	shown := s.metricsText(t)
	if series := seriesOf(shown, "guildhall_build_info"); len(series) != 1 || !strings.Contains(series[0], `version="devel"`) {
		t.Errorf("the build is shown as %q", series)
	}
	for _, e := range expressions {
		for _, found := range selector.FindAllStringSubmatch(e, -1) {
			name := found[1]
			series := seriesOf(shown, name)
			if len(series) == 0 && withoutSeries[name] == "" {
				t.Errorf("there is no %s: %s", name, e)
			}
			for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
				// The label job is added by Prometheus.
				if len(series) > 0 && m[1] != "job" && !chosen(series, m[1], m[2], m[3]) {
					t.Errorf("no series of %s has %s: %s", name, m[0], e)
				}
			}
		}
	}
}

// seriesOf returns the lines of a metric; _count and _bucket are metrics of their own.
func seriesOf(shown, name string) (lines []string) {
	for line := range strings.Lines(shown) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// chosen reports whether a series has the label and, where the value can be known, a value that the
// matcher selects.
func chosen(series []string, label, how, value string) bool {
	return slices.ContainsFunc(series, func(line string) bool {
		_, rest, has := strings.Cut(line, label+`="`)
		is, _, _ := strings.Cut(rest, `"`)
		if !has || laterValues[label] || how[0] == '!' {
			return has
		}
		return regexp.MustCompile("^(?:" + value + ")$").MatchString(is)
	})
}

func (s *serving) metricsText(t *testing.T) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.ops+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, text := respond(t, http.DefaultClient, req)
	return text
}

// Each alert names a section of the documents that says what to do.
func TestEachAlertHasARunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operate/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range rules(t).Groups {
		for _, r := range g.Rules {
			if want := "docs/operate/observe.md#" + strings.ToLower(r.Alert); r.Annotations.Runbook != want || r.Annotations.Summary == "" {
				t.Errorf("%s: %+v, want the runbook %s", r.Alert, r.Annotations, want)
			}
			_, section, found := bytes.Cut(text, []byte("### "+r.Alert+"\n"))
			if section, _, _ = bytes.Cut(section, []byte("\n#")); !found || len(section) < 80 {
				t.Errorf("docs/operate/observe.md says %q of %s", section, r.Alert)
			}
		}
	}
}

// Prometheus' own tool takes the configurations that the documents show.
func TestPrometheusTakesTheConfigurationsOfTheDocuments(t *testing.T) {
	t.Parallel()
	promtool := testutil.Program(t, "promtool")
	rules, err := os.ReadFile(filepath.Join(deployFolder, "prometheus", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	_, installed, _ := strings.Cut(one(t, codeOf(t, "docs/operate/install.md", "Watch it"), "sh"), "<<'END'\n")
	installed, _, found := strings.Cut(installed, "END\n")
	if !found {
		t.Fatal("install.md writes no configuration")
	}
	for file, config := range map[string]string{
		"guildhall.yaml": installed,
		"rules.yaml":     one(t, codeOf(t, "docs/operate/observe.md", "Alerts"), "yaml"),
	} {
		dir := t.TempDir()
		writeFile(t, dir, "prometheus.yml", config)
		writeFile(t, dir, file, string(rules))
		out, err := exec.CommandContext(t.Context(), promtool, "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "1 rule files found") {
			t.Errorf("promtool says of the configuration with %s: %v\n%s", file, err, out)
		}
	}
}

// Prometheus' own tool runs the tests of the alerts.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	promtool := testutil.Program(t, "promtool")
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = filepath.Join(deployFolder, "prometheus")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
