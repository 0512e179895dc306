package promqltest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/teststorage"
)

// perStore is the number of queries over the same data.
const perStore = 2500

// workers is the number of queries that are sent at once.
const workers = 4

// tolerance is the relative difference of values that depend on the order of series, or on the C library.
const tolerance = 1e-12

var (
	// addsSeries finds the operations for which Prometheus adds series in no defined order.
	addsSeries = regexp.MustCompile(`\b(sum|avg|stddev|stdvar)\b`)
	// isOrdered finds the errors of which another one may come first, by the order in which arguments and
	// series are evaluated.
	isOrdered = regexp.MustCompile("duplicate series|multiple matches|same labelset|value is NaN|int64|factor")
	// isInexact finds the functions that differ in the last bits.
	isInexact = regexp.MustCompile(`\^|\b(atan2|exp|ln|log2|log10|a?sinh?|a?cosh?|a?tanh?)\b`)
)

// engines is the same data in stores of Prometheus and in one of Holdfast.
type engines struct {
	prometheus *promql.Engine
	// stores have the series in several orders, the first in that of the labels.
	stores   []*teststorage.TestStorage
	holdfast *server
	data     []randomSeries
}

func newEngines(t *testing.T, seed int64) *engines {
	e := &engines{data: randomData(rand.New(rand.NewSource(seed))), holdfast: start(t)}
	e.prometheus = promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: 2 * time.Minute, LookbackDelta: 5 * time.Minute,
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		EnableAtModifier:         true, EnableNegativeOffset: true, Parser: parser.NewParser(options),
	})
	load(t, e.holdfast, e.data)
	rnd, ordered := rand.New(rand.NewSource(seed)), slices.Clone(e.data)
	for at := range 8 {
		if at == 1 {
			slices.Reverse(ordered)
		} else if at > 1 {
			rnd.Shuffle(len(ordered), func(a, b int) { ordered[a], ordered[b] = ordered[b], ordered[a] })
		}
		store, err := teststorage.NewWithError()
		if err != nil {
			t.Fatal(err)
		}
		load(t, store, ordered)
		e.stores = append(e.stores, store)
	}
	return e
}

// end removes the stores.
func (e *engines) end() {
	e.holdfast.Close()
	for _, store := range e.stores {
		store.Close()
	}
}

// run evaluates a query with an engine.
func run(engine promql.QueryEngine, store storage.Queryable, q asked) *promql.Result {
	var query promql.Query
	var err error
	ctx := context.Background()
	if q.step == 0 {
		query, err = engine.NewInstantQuery(ctx, store, nil, q.text, time.UnixMilli(q.from))
	} else {
		step := time.Duration(q.step) * time.Millisecond
		query, err = engine.NewRangeQuery(ctx, store, nil, q.text, time.UnixMilli(q.from), time.UnixMilli(q.to), step)
	}
	if err != nil {
		return &promql.Result{Err: err}
	}
	defer query.Close()
	result := query.Exec(ctx)
	// The points are used again after Close.
	result.Value = copied(result.Value)
	return result
}

func copied(value parser.Value) parser.Value {
	switch v := value.(type) {
	case promql.Vector:
		return slices.Clone(v)
	case promql.Matrix:
		out := slices.Clone(v)
		for at := range out {
			out[at].Floats = slices.Clone(out[at].Floats)
		}
		return out
	}
	return value
}

// outcome is the result of the comparison of a query.
type outcome int

const (
	equal outcome = iota
	// close is equal but for the last bits, which are not defined.
	close
	// failing is a query that fails with another of its errors.
	failing
	// undefined is a query to which Prometheus has several answers, by the order of its series.
	undefined
	different
)

// compare runs a query with both engines. It returns the first difference.
func (e *engines) compare(q asked) (outcome, error) {
	theirs, ours := run(e.prometheus, e.stores[0], q), run(engine{}, e.holdfast, q)
	first := difference(q, theirs, ours, 0)
	if first == nil {
		return equal, nil
	}
	if addsSeries.MatchString(q.text) || isInexact.MatchString(q.text) {
		if difference(q, theirs, ours, tolerance) == nil {
			return close, nil
		}
	}
	if theirs.Err != nil && ours.Err != nil && isOrdered.MatchString(theirs.Err.Error()) {
		return failing, nil
	}
	// A range query visits the series in another order each time.
	for range 3 {
		for _, store := range e.stores {
			again := run(e.prometheus, store, q)
			if difference(q, again, ours, 0) == nil {
				return equal, nil
			}
			if difference(q, theirs, again, 0) != nil {
				return undefined, first
			}
		}
	}
	return different, first
}

// difference returns the first difference between two answers, if values may differ by a relative error.
func difference(q asked, theirs, ours *promql.Result, tolerance float64) error {
	if theirs.Err != nil || ours.Err != nil {
		if theirs.Err == nil || ours.Err == nil || theirs.Err.Error() != ours.Err.Error() {
			return fmt.Errorf("errors: %v, and ours: %v", theirs.Err, ours.Err)
		}
		return nil
	}
	if err := differentNotes(q, theirs, ours); err != nil {
		return err
	}
	theirs.Value, ours.Value = readable(q, theirs.Value), readable(q, ours.Value)
	switch a := theirs.Value.(type) {
	case promql.Scalar:
		b, ok := ours.Value.(promql.Scalar)
		if !ok || a.T != b.T || !same(a.V, b.V, tolerance) {
			return fmt.Errorf("%v, and ours: %v", a, ours.Value)
		}
		return nil
	case promql.Vector:
		b, ok := ours.Value.(promql.Vector)
		if !ok {
			return fmt.Errorf("no vector: %v", ours.Value)
		}
		ranking, by := ranking(q.text)
		lacks := func(one promql.Sample) bool {
			return slices.ContainsFunc(by, func(name string) bool { return !one.Metric.Has(name) })
		}
		// Prometheus' order of series without such a label is not defined: either one is less than the other.
		if strings.HasPrefix(ranking, "sort_by_label") && !slices.ContainsFunc(a, lacks) {
			return differentMatrix(matrix(a), matrix(b), tolerance)
		}
		for at := range min(len(a), len(b)) {
			// The order of series with the same value is not defined.
			isByValue := ranking != "" && !strings.HasPrefix(ranking, "sort_by_label")
			if isByValue && !same(a[at].F, b[at].F, tolerance) {
				return fmt.Errorf("%v at place %d, and ours: %v", a[at], at, b[at])
			}
		}
		order := func(a, b promql.Sample) int { return labels.Compare(a.Metric, b.Metric) }
		a, b = slices.SortedFunc(slices.Values(a), order), slices.SortedFunc(slices.Values(b), order)
		return differentMatrix(matrix(a), matrix(b), tolerance)
	case promql.Matrix:
		b, ok := ours.Value.(promql.Matrix)
		if !ok {
			return fmt.Errorf("no matrix: %v", ours.Value)
		}
		return differentMatrix(a, b, tolerance)
	}
	return errors.New("an answer of a new kind")
}

// ranking returns the operation that decides the order of an instant query's series, and its labels.
func ranking(text string) (string, []string) {
	expr, err := parser.NewParser(options).ParseExpr(text)
	for err == nil {
		paren, ok := expr.(*parser.ParenExpr)
		if !ok {
			break
		}
		expr = paren.Expr
	}
	switch e := expr.(type) {
	case *parser.Call:
		if strings.HasPrefix(e.Func.Name, "sort") {
			var by []string
			for _, arg := range e.Args[1:] {
				by = append(by, arg.(*parser.StringLiteral).Val)
			}
			return e.Func.Name, by
		}
	case *parser.AggregateExpr:
		if e.Op == parser.TOPK || e.Op == parser.BOTTOMK {
			return e.Op.String(), nil
		}
	}
	return "", nil
}

// readable returns an answer in which each label of count_values that is a number is written by Go. Of the
// two shortest texts of a number that is half-way between them, Go takes the even one and Rust the other.
func readable(q asked, answer parser.Value) parser.Value {
	if !strings.Contains(q.text, "count_values") {
		return answer
	}
	change := func(metric labels.Labels) labels.Labels {
		out := labels.NewBuilder(metric)
		metric.Range(func(l labels.Label) {
			if number, err := strconv.ParseFloat(l.Value, 64); err == nil && len(l.Value) > 15 {
				out.Set(l.Name, strconv.FormatFloat(number, 'f', -1, 64))
			}
		})
		return out.Labels()
	}
	answer = copied(answer)
	switch v := answer.(type) {
	case promql.Vector:
		for at := range v {
			v[at].Metric = change(v[at].Metric)
		}
	case promql.Matrix:
		for at := range v {
			v[at].Metric = change(v[at].Metric)
		}
	}
	return answer
}

// matrix returns a vector as series of one point.
func matrix(vector promql.Vector) promql.Matrix {
	var out promql.Matrix
	for _, one := range vector {
		out = append(out, promql.Series{Metric: one.Metric, Floats: []promql.FPoint{{T: one.T, F: one.F}}})
	}
	return out
}

func differentMatrix(theirs, ours promql.Matrix, tolerance float64) error {
	for at, a := range theirs {
		if at >= len(ours) {
			return fmt.Errorf("%s is missing, %v", a.Metric, a.Floats)
		}
		b := ours[at]
		if labels.Compare(a.Metric, b.Metric) != 0 {
			return fmt.Errorf("series %d: %s, and ours: %s", at, a.Metric, b.Metric)
		}
		for step, p := range a.Floats {
			if step >= len(b.Floats) {
				return fmt.Errorf("%s at %d: %v is missing", a.Metric, p.T, p.F)
			}
			if o := b.Floats[step]; p.T != o.T || !same(p.F, o.F, tolerance) {
				return fmt.Errorf("%s: %v at %d, and ours: %v at %d", a.Metric, p.F, p.T, o.F, o.T)
			}
		}
		if len(b.Floats) > len(a.Floats) {
			return fmt.Errorf("%s: %v is too much", a.Metric, b.Floats[len(a.Floats)])
		}
	}
	if len(ours) > len(theirs) {
		return fmt.Errorf("%s is too much", ours[len(theirs)].Metric)
	}
	return nil
}

// same returns true if two values are the same bits, or numbers with a small relative difference.
func same(a, b, tolerance float64) bool {
	if math.Float64bits(a) == math.Float64bits(b) || (math.IsNaN(a) && math.IsNaN(b)) {
		return true
	}
	// Go's sinh and cosh are infinite a little too soon.
	if tolerance > 0 && (math.IsInf(a, 1) && b > math.MaxFloat64/2 || math.IsInf(a, -1) && b < -math.MaxFloat64/2) {
		return true
	}
	return math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b)) && !math.IsInf(a, 0) && !math.IsInf(b, 0)
}

// differentNotes compares warnings and infos. Of more than 10, an answer has some.
func differentNotes(q asked, theirs, ours *promql.Result) error {
	warnings, infos := theirs.Warnings.AsStrings(q.text, 10, 10)
	ourWarnings, ourInfos := ours.Warnings.AsStrings(q.text, 0, 0)
	// Of two notes with the same text, one place is kept, and which one is not defined.
	isTwice := false
	for _, source := range []string{"sort", "quantile", "histogram", "rate", "increase"} {
		isTwice = isTwice || strings.Count(q.text, source) > 1
	}
	for _, pair := range [][2][]string{{warnings, ourWarnings}, {infos, ourInfos}} {
		a, b := comparable(pair[0], isTwice), comparable(pair[1], isTwice)
		if len(a) > 10 && len(a) == len(b) {
			continue
		}
		if !slices.Equal(a, b) {
			return fmt.Errorf("annotations: %q, and ours: %q", a, b)
		}
	}
	return nil
}

// comparable removes what differs by design from annotations.
func comparable(texts []string, withoutPlaces bool) []string {
	var out []string
	for _, text := range texts {
		// The number of samples is wrong in range queries of Prometheus, which counts each several times.
		text, _, _ = strings.Cut(text, ", from buckets")
		if before, _, found := strings.Cut(text, "fixed for monotonicity"); found {
			text = before
		}
		// Prometheus gives no place, but the first one of the query, for a subquery.
		isCounter := strings.Contains(text, "might not be a counter")
		if before, _, found := strings.Cut(text, " (1:"); found && (isCounter || withoutPlaces) {
			text = before
		}
		out = append(out, text)
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}

// environment returns a number from the environment.
func environment(t *testing.T, name string, usual int64) int64 {
	text := os.Getenv(name)
	if text == "" {
		return usual
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// TestRandomQueries compares the answers of both engines to random queries over random series.
func TestRandomQueries(t *testing.T) {
	if os.Getenv("HOLDFAST") == "" {
		t.Skip("HOLDFAST names no program: run tests/promqltest.sh")
	}
	first := environment(t, "SEED", 1)
	if text := os.Getenv("QUERY"); text != "" {
		e := newEngines(t, first)
		defer e.end()
		q := asked{text, environment(t, "FROM", 0), environment(t, "TO", 0), environment(t, "STEP", 0)}
		e.repeat(t, q)
		return
	}
	queries := environment(t, "QUERIES", 10_000)
	var counts [different + 1]atomic.Int64
	for seed := first; (seed-first)*perStore < queries; seed++ {
		e := newEngines(t, seed)
		var wait sync.WaitGroup
		for worker := range int64(workers) {
			wait.Go(func() {
				generator := newGenerator(rand.New(rand.NewSource(seed*workers+worker)), e.data)
				for range perStore / workers {
					q := generator.next()
					outcome, err := e.compare(q)
					counts[outcome].Add(1)
					if outcome == different {
						t.Errorf("%v\nSEED=%d FROM=%d TO=%d STEP=%d QUERY=%q", err, seed, q.from, q.to, q.step, q.text)
					} else if outcome == undefined && os.Getenv("UNDEFINED") != "" {
						t.Logf("undefined: %v\nSEED=%d FROM=%d TO=%d STEP=%d QUERY=%q", err, seed, q.from, q.to, q.step, q.text)
					}
				}
			})
		}
		wait.Wait()
		e.end()
	}
	t.Logf("seeds from %d: %d equal, %d close, %d with another error, %d undefined, %d different", first,
		counts[equal].Load(), counts[close].Load(), counts[failing].Load(), counts[undefined].Load(),
		counts[different].Load())
}

// differed are queries whose answers differed once.
var differed = []string{
	`count(sort(requests_total))`,
	`count(sort(requests_total @ 600))`,
	`sum_over_time(sort(up)[5m:1m])`,
	`sum_over_time(sort(limitk(NaN, up))[34s:1m])`,
	`irate(temperature[5m])`,
	`quantile(1e300, up)`,
	`quantile(time(), up)`,
	`quantile_over_time(3, none[5m])`,
	`quantile_over_time(time(), up[1m])`,
	`double_exponential_smoothing(none[5m], 3, 0.5)`,
	`double_exponential_smoothing(up[5m], 0.5, -Inf)`,
	`double_exponential_smoothing(up[5m] smoothed, 2, 0.5)`,
	`limitk(0.5, up / on (job) up)`,
	`topk(NaN, up / on (job) up)`,
	`bottomk(1e300, up)`,
	`{"cpu.user"} / on () {"cpu.user"}`,
	`odd * on (job) group_right () temperature`,
	`odd * on (job) temperature{instance="h1"}`,
	`histogram_fraction(0, 3, latency_bucket{le!="2.5"})`,
	`histogram_quantile(2, (up))`,
	`absent_over_time(up[5m] smoothed)`,
	`acosh(odd)`,
	`clamp_min(up, -0)`,
	`vector(range() + step())`,
	`rate(requests_total[range()])`,
	`clamp_max(-up, 0)`,
}

// TestKnownDifferences repeats the queries whose answers differed once.
func TestKnownDifferences(t *testing.T) {
	if os.Getenv("HOLDFAST") == "" {
		t.Skip("HOLDFAST names no program: run tests/promqltest.sh")
	}
	e := newEngines(t, 1)
	defer e.end()
	for _, text := range differed {
		for from := int64(0); from < endMs; from += 300_000 {
			for _, q := range []asked{{text, from, from, 0}, {text, from, from + 500_000, 60_000}, {text, from, from + 4_988, 1_000}} {
				if outcome, err := e.compare(q); outcome == different {
					t.Errorf("%v\nFROM=%d TO=%d STEP=%d QUERY=%q", err, q.from, q.to, q.step, q.text)
				}
			}
		}
	}
}

// repeat shows both answers to a query.
func (e *engines) repeat(t *testing.T, q asked) {
	t.Logf("theirs: %v", run(e.prometheus, e.stores[0], q))
	t.Logf("theirs, with the series reversed: %v", run(e.prometheus, e.stores[1], q))
	t.Logf("ours: %v", run(engine{}, e.holdfast, q))
	if outcome, err := e.compare(q); outcome == different {
		t.Error(err)
	}
}
