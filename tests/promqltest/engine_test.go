package promqltest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
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

// run runs an evaluation as a test of its own. It returns why it failed.
func (e evaluation) run(t *testing.T, engine promql.QueryEngine, open func(testing.TB) storage.Storage) string {
	out, err := os.CreateTemp("", "promqltest")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(out.Name())
	stdout := os.Stdout
	os.Stdout = out
	all := func(string, string) (bool, error) { return true, nil }
	passed := testing.RunTests(all, []testing.InternalTest{{Name: e.name, F: func(t *testing.T) {
		promqltest.RunTestWithStorage(t, e.script, engine, open)
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

// watchedStorage is a storage that notes whether a query read a histogram.
type watchedStorage struct {
	storage.Storage
	histograms *bool
}

func (s watchedStorage) Querier(from, to int64) (storage.Querier, error) {
	querier, err := s.Storage.Querier(from, to)
	return watchedQuerier{querier, s.histograms}, err
}

type watchedQuerier struct {
	storage.Querier
	histograms *bool
}

func (q watchedQuerier) Select(ctx context.Context, sorted bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	return watchedSet{q.Querier.Select(ctx, sorted, hints, matchers...), q.histograms}
}

type watchedSet struct {
	storage.SeriesSet
	histograms *bool
}

func (s watchedSet) At() storage.Series { return watchedSeries{s.SeriesSet.At(), s.histograms} }

type watchedSeries struct {
	storage.Series
	histograms *bool
}

func (s watchedSeries) Iterator(chunkenc.Iterator) chunkenc.Iterator {
	return watchedIterator{s.Series.Iterator(nil), s.histograms}
}

type watchedIterator struct {
	chunkenc.Iterator
	histograms *bool
}

func (i watchedIterator) Next() chunkenc.ValueType { return i.note(i.Iterator.Next()) }

func (i watchedIterator) Seek(t int64) chunkenc.ValueType { return i.note(i.Iterator.Seek(t)) }

func (i watchedIterator) note(kind chunkenc.ValueType) chunkenc.ValueType {
	if kind == chunkenc.ValHistogram || kind == chunkenc.ValFloatHistogram {
		*i.histograms = true
	}
	return kind
}

// reference returns the engine of Prometheus, with its default flags or with those of its own tests.
func reference(t *testing.T, experimental bool) *promql.Engine {
	if experimental {
		return promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	}
	return promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{
		MaxSamples: promqltest.DefaultMaxSamplesPerQuery, Timeout: time.Minute,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		EnableAtModifier:         true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
	})
}

// score counts the evaluations that Prometheus passes without reading a histogram, and those of them that
// pass here.
type score struct{ passed, all int }

func (s score) String() string { return thousands(s.passed) + " of " + thousands(s.all) }

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// TestEvaluations runs the evaluations of Prometheus' test files that concern floats: those that Prometheus
// passes without reading a histogram, with default flags or with experimental ones. expected.txt names those
// that fail here, and docs/reference/promql.md has both scores.
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
		if words := strings.SplitN(line, " ", 3); len(words) == 3 {
			failing[words[0]+" "+words[1]] = true
		}
	}
	only := os.Getenv("ONLY")
	histograms := false
	theirs := func(t testing.TB) storage.Storage {
		histograms = false
		return watchedStorage{promqltest.NewBuiltinTestStorage(t), &histograms}
	}
	ours := func(t testing.TB) storage.Storage { return start(t) }
	flags := []string{"default", "experimental"}
	engines := map[string]*promql.Engine{"default": reference(t, false), "experimental": reference(t, true)}
	scores := map[string]*score{"default": {}, "experimental": {}}
	var seen []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range evaluations(filepath.Base(file), string(text)) {
			if only != "" && !strings.Contains(e.name, only) {
				continue
			}
			// With default flags some queries are refused before they read a histogram.
			if e.run(t, engines["experimental"], theirs) != "" || histograms {
				continue
			}
			in := flags[1:]
			if e.run(t, engines["default"], theirs) == "" {
				in = flags
			}
			why := e.run(t, engine{}, ours)
			for _, flag := range in {
				scores[flag].all++
				if why == "" {
					scores[flag].passed++
				}
			}
			name := in[0] + " " + e.name
			if (why != "") != failing[name] {
				t.Errorf("%s: %s", name, shortened(why))
			}
			if why != "" {
				seen = append(seen, name+" "+shortened(why))
			}
		}
	}
	t.Logf("evaluations that pass: %s with default flags, %s with experimental ones",
		scores["default"], scores["experimental"])
	if file := os.Getenv("WRITE"); file != "" {
		os.WriteFile(file, []byte(strings.Join(seen, "\n")+"\n"), 0o644)
	}
	if only != "" {
		return
	}
	document, err := os.ReadFile("../../docs/reference/promql.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, flag := range flags {
		if !strings.Contains(blanks.ReplaceAllString(string(document), " "), scores[flag].String()+" ") {
			t.Errorf("promql.md does not say %s (%s flags)", scores[flag], flag)
		}
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
