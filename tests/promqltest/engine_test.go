package promqltest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
)

// evaluation is one evaluation of a test file, with everything that was loaded before it.
type evaluation struct {
	name   string
	script string
}

// evaluations splits a test file.
func evaluations(name, text string) []evaluation {
	var out []evaluation
	loaded, block, first := "", "", 0
	end := func() {
		switch {
		case strings.HasPrefix(block, "clear"):
			loaded = ""
		case strings.HasPrefix(block, "load"):
			loaded += block + "\n"
		case strings.HasPrefix(block, "eval"):
			out = append(out, evaluation{fmt.Sprintf("%s:%d", name, first), loaded + block})
		}
		block = ""
	}
	for number, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		if line[0] != ' ' && line[0] != '\t' {
			end()
			first = number + 1
		}
		block += line + "\n"
	}
	end()
	return out
}

// isFloat returns true if an evaluation concerns floats only.
func (e evaluation) isFloat() bool {
	return !strings.Contains(e.script, "{{") && !strings.Contains(e.script, "load_with_nhcb") &&
		!strings.Contains(e.script, "@st")
}

// run runs an evaluation as a test of its own. It returns why it failed.
func (e evaluation) run(t *testing.T) string {
	out, err := os.CreateTemp("", "promqltest")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(out.Name())
	stdout := os.Stdout
	os.Stdout = out
	all := func(string, string) (bool, error) { return true, nil }
	passed := testing.RunTests(all, []testing.InternalTest{{Name: e.name, F: func(t *testing.T) {
		promqltest.RunTestWithStorage(t, e.script, engine{}, func(testing.TB) storage.Storage {
			return start(t)
		})
	}}})
	os.Stdout = stdout
	if passed {
		return ""
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEvaluations runs the evaluations of Prometheus' test files. expected.txt names those that fail.
func TestEvaluations(t *testing.T) {
	if os.Getenv("HOLDFAST") == "" {
		t.Skip("HOLDFAST names no program: run tests/promqltest.sh")
	}
	files, err := filepath.Glob(filepath.Join(source(t), "promql/promqltest/testdata/*.test"))
	if err != nil || len(files) == 0 {
		t.Fatal("no test files", err)
	}
	known, err := os.ReadFile("expected.txt")
	if err != nil {
		t.Fatal(err)
	}
	failing := map[string]bool{}
	for _, line := range strings.Split(string(known), "\n") {
		if name, _, ok := strings.Cut(line, " "); ok {
			failing[name] = true
		}
	}
	only := os.Getenv("ONLY")
	passed, all := 0, 0
	var seen []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evaluations(filepath.Base(file), string(text)) {
			if !e.isFloat() || (only != "" && !strings.Contains(e.name, only)) {
				continue
			}
			all++
			why := e.run(t)
			if why == "" {
				passed++
			}
			if (why != "") != failing[e.name] {
				t.Errorf("%s: %s", e.name, shortened(why))
			}
			if why != "" {
				seen = append(seen, e.name+" "+shortened(why))
			}
		}
	}
	t.Logf("%d of %d evaluations pass", passed, all)
	if file := os.Getenv("WRITE"); file != "" {
		os.WriteFile(file, []byte(strings.Join(seen, "\n")+"\n"), 0o644)
	}
}

var blanks = regexp.MustCompile(`\s+`)

// shortened returns the line of a failure that says what is wrong.
func shortened(why string) string {
	for _, start := range []string{"Error:", "Received unexpected error:"} {
		if _, after, ok := strings.Cut(why, start); ok {
			why = after
		}
	}
	why = strings.TrimSpace(blanks.ReplaceAllString(why, " "))
	if len(why) > 300 {
		why = why[:300]
	}
	return why
}
