package promqltest

import (
	"math"
	"math/rand"
	"regexp"
	"strings"
	"time"

	"github.com/cortexproject/promqlsmith"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// inexact are functions of the C library here and of Go there, which differ in the last bits. They are
// the outermost ones of a query, so that nothing makes more of the difference.
var inexact = strings.Fields("exp ln log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh")

// excluded are functions that Holdfast refuses.
var excluded = regexp.MustCompile(`^(info|integral|histogram_quantiles|start_timestamp|holt_winters)$`)

// orders finds the operations that change the order of series.
var orders = regexp.MustCompile(`\b(sort|sort_desc|sort_by_label|sort_by_label_desc|topk|bottomk|limitk)\b`)

// dateMax is the most seconds of which a date is asked.
const dateMax = 1e10

func init() {
	// Added by promqlsmith, and no function of Prometheus 3.
	delete(parser.Functions, "holt_winters")
}

// asked is a random query.
type asked struct {
	text string
	// from, to and step are milliseconds. An instant query has no step.
	from, to, step int64
}

// generator makes random queries.
type generator struct {
	rnd   *rand.Rand
	smith *promqlsmith.PromQLSmith
}

func newGenerator(rnd *rand.Rand, data []randomSeries) *generator {
	var functions []*parser.Function
	isInexact := map[string]bool{}
	for _, name := range inexact {
		isInexact[name] = true
	}
	for name, function := range parser.Functions {
		if !excluded.MatchString(name) && !isInexact[name] {
			functions = append(functions, function)
		}
	}
	var all []labels.Labels
	for _, one := range data {
		all = append(all, one.labels)
	}
	smith := promqlsmith.New(rnd, all,
		promqlsmith.WithEnableOffset(true),
		promqlsmith.WithEnableAtModifier(true),
		promqlsmith.WithAtModifierMaxTimestamp(endMs+600_000),
		promqlsmith.WithEnableVectorMatching(true),
		promqlsmith.WithMaxDepth(4),
		// Without the unary minus, of which there would be too many.
		promqlsmith.WithEnabledExprs([]promqlsmith.ExprType{
			promqlsmith.VectorSelector, promqlsmith.MatrixSelector, promqlsmith.BinaryExpr,
			promqlsmith.AggregateExpr, promqlsmith.SubQueryExpr, promqlsmith.CallExpr,
			promqlsmith.NumberLiteral,
		}),
		promqlsmith.WithEnabledFunctions(functions),
		promqlsmith.WithEnabledBinOps([]parser.ItemType{
			parser.SUB, parser.ADD, parser.MUL, parser.MOD, parser.DIV, parser.EQLC, parser.NEQ,
			parser.LTE, parser.GTE, parser.LSS, parser.GTR, parser.LAND, parser.LOR, parser.LUNLESS,
		}),
		promqlsmith.WithEnabledAggrs([]parser.ItemType{
			parser.SUM, parser.MIN, parser.MAX, parser.AVG, parser.COUNT, parser.GROUP, parser.STDDEV,
			parser.STDVAR, parser.TOPK, parser.BOTTOMK, parser.QUANTILE, parser.COUNT_VALUES, parser.LIMITK,
		}))
	return &generator{rnd, smith}
}

// next returns a query that Prometheus' parser takes.
func (g *generator) next() asked {
	for {
		q := asked{from: g.rnd.Int63n(endMs+600_000) - 300_000}
		q.to = q.from
		kinds := []parser.ValueType{parser.ValueTypeVector}
		switch g.rnd.Intn(20) {
		case 0:
			kinds = append(kinds, parser.ValueTypeScalar)
		case 1:
			kinds = append(kinds, parser.ValueTypeMatrix)
		}
		if g.rnd.Intn(2) == 0 {
			kinds = kinds[:1]
			q.step = []int64{1_000, 5_000, 15_000, 60_000, 300_000, 7_777}[g.rnd.Intn(6)]
			q.to = q.from + q.step*g.rnd.Int63n(20) + g.rnd.Int63n(q.step)
		}
		expr := g.smith.Walk(kinds...)
		if _, isPlain := expr.(*parser.VectorSelector); expr == nil || (isPlain && g.rnd.Intn(10) > 0) {
			continue
		}
		parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
			g.change(node, path)
			return nil
		})
		q.text = g.outermost(expr)
		if _, err := parser.NewParser(options).ParseExpr(q.text); err == nil {
			return q
		}
	}
}

// outermost returns the text of an expression, sometimes within a function that is not exact.
func (g *generator) outermost(expr parser.Expr) string {
	text := g.durations(expr.String())
	if expr.Type() != parser.ValueTypeVector || g.rnd.Intn(12) > 0 {
		return text
	}
	switch g.rnd.Intn(8) {
	case 0:
		return "(" + text + ") ^ " + []string{"2", "3", "0.5", "-1", "0", "NaN", "Inf"}[g.rnd.Intn(7)]
	case 1:
		return "(" + text + ") atan2 " + []string{"2", "-0", "NaN", "-Inf"}[g.rnd.Intn(4)]
	}
	return inexact[g.rnd.Intn(len(inexact))] + "(" + text + ")"
}

// durations replaces some durations by expressions.
func (g *generator) durations(text string) string {
	if g.rnd.Intn(10) > 0 {
		return text
	}
	text = strings.ReplaceAll(text, "[1m]", "[30s+step()/2+1]")
	text = strings.ReplaceAll(text, "[2m]", "[max_of(2m, range() / 4)]")
	return strings.ReplaceAll(text, "[3m]", "[90s * 2]")
}

// change makes a node of a tree less usual.
func (g *generator) change(node parser.Node, path []parser.Node) {
	switch n := node.(type) {
	case *parser.NumberLiteral:
		if g.rnd.Intn(2) == 0 && math.Abs(n.Val) != dateMax {
			n.Val = g.number().Val
		}
	case *parser.VectorSelector:
		if subqueries(path) > 1 {
			n.Timestamp, n.StartOrEnd = nil, 0
		}
		if _, isMatrix := parent(path).(*parser.MatrixSelector); !isMatrix && g.rnd.Intn(40) == 0 {
			n.Smoothed = true
		}
		// Series of several metrics, which may have the same other labels.
		for at, matcher := range n.LabelMatchers {
			if matcher.Name == labels.MetricName && g.rnd.Intn(12) == 0 {
				names := []string{".*_total", "up|odd", "temperature|cpu.user", ".*r.*"}[g.rnd.Intn(4)]
				n.LabelMatchers[at] = labels.MustNewMatcher(labels.MatchRegexp, labels.MetricName, names)
			}
		}
	case *parser.SubqueryExpr:
		n.Range = time.Duration(g.rnd.Intn(900)+1) * time.Second
		n.Step = []time.Duration{0, time.Second, 7 * time.Second, 30 * time.Second, time.Minute}[g.rnd.Intn(5)]
		if n.Step == time.Second && n.Range > time.Minute {
			n.Step = 10 * time.Second
		}
		if subqueries(path) > 0 {
			// Prometheus takes another time where it has two to fix, one within the other.
			n.Timestamp, n.StartOrEnd = nil, 0
		} else if g.rnd.Intn(2) == 0 {
			if expr := g.smith.Walk(parser.ValueTypeVector); expr != nil {
				n.Expr = expr
			}
		}
	case *parser.MatrixSelector:
		if g.rnd.Intn(4) == 0 {
			n.Range = time.Duration(g.rnd.Intn(600_000)+1) * time.Millisecond
		}
		selector := n.VectorSelector.(*parser.VectorSelector)
		selector.Smoothed = false
		call, ok := parent(path).(*parser.Call)
		if !ok || g.rnd.Intn(3) > 0 {
			return
		}
		switch call.Func.Name {
		case "rate", "increase", "delta":
			selector.Anchored = g.rnd.Intn(2) == 0
			selector.Smoothed = !selector.Anchored
		case "changes", "resets":
			selector.Anchored = true
		case "absent_over_time", "sum_over_time":
			// An error.
			selector.Smoothed = g.rnd.Intn(10) == 0
		}
	case *parser.Call:
		g.call(n)
	case *parser.BinaryExpr:
		g.matching(n)
	case *parser.AggregateExpr:
		// Which of equal values is in front is not defined after another operation that orders.
		if n.Op == parser.TOPK || n.Op == parser.BOTTOMK || n.Op == parser.LIMITK {
			if orders.MatchString(n.Expr.String()) {
				n.Op, n.Param = parser.COUNT, nil
			}
		}
		// Prometheus evaluates the parameter at the first step only if the time of the series is fixed, and
		// resolves no @ within it.
		isFixed := strings.Contains(n.String(), " @ ") || strings.Contains(n.Expr.String(), "vector(")
		if n.Param != nil && n.Param.Type() == parser.ValueTypeScalar && (isFixed || g.rnd.Intn(4) > 0) {
			n.Param = g.number()
		}
		if n.Op == parser.COUNT_VALUES && g.rnd.Intn(4) == 0 {
			n.Param = &parser.StringLiteral{Val: []string{"job", "le", "a b"}[g.rnd.Intn(3)]}
		}
	}
}

// subqueries returns the number of subqueries above a node.
func subqueries(path []parser.Node) int {
	count := 0
	for _, node := range path {
		if _, is := node.(*parser.SubqueryExpr); is {
			count++
		}
	}
	return count
}

// parent returns the node above one, or nil.
func parent(path []parser.Node) parser.Node {
	if len(path) == 0 {
		return nil
	}
	return path[len(path)-1]
}

// number returns a number, often one with corner cases.
func (g *generator) number() *parser.NumberLiteral {
	odd := []float64{0, math.Copysign(0, -1), -1, 1e18, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)}
	if g.rnd.Intn(4) == 0 {
		return &parser.NumberLiteral{Val: odd[g.rnd.Intn(len(odd))]}
	}
	return &parser.NumberLiteral{Val: []float64{0.5, 0.9, 0.1, 1, 2, 3, 10}[g.rnd.Intn(7)]}
}

// call changes the numbers and strings of a call, and its sign.
func (g *generator) call(n *parser.Call) {
	for at, arg := range n.Args {
		if arg != nil && arg.Type() == parser.ValueTypeScalar && g.rnd.Intn(2) == 0 {
			n.Args[at] = g.number()
		}
		if arg != nil && arg.Type() == parser.ValueTypeVector && g.rnd.Intn(20) == 0 {
			n.Args[at] = &parser.UnaryExpr{Op: parser.SUB, Expr: arg}
		}
	}
	pick := func(texts ...string) parser.Expr { return &parser.StringLiteral{Val: texts[g.rnd.Intn(len(texts))]} }
	switch n.Func.Name {
	case "year", "month", "day_of_month", "day_of_week", "day_of_year", "days_in_month", "hour", "minute":
		// Go does not define the integer of a number that is NaN or too large.
		if len(n.Args) > 0 {
			least := &parser.BinaryExpr{Op: parser.GTR, LHS: n.Args[0], RHS: &parser.NumberLiteral{Val: -dateMax}}
			n.Args[0] = &parser.BinaryExpr{Op: parser.LSS, LHS: least, RHS: &parser.NumberLiteral{Val: dateMax}}
		}
	case "timestamp":
		// With a fixed time, Prometheus forgets the offset.
		if selector, ok := n.Args[0].(*parser.VectorSelector); ok && (selector.Timestamp != nil || selector.StartOrEnd != 0) {
			selector.OriginalOffset = 0
		}
	case "label_replace":
		n.Args[1] = pick("new", "job", "instance", "__name__", "a b")
		n.Args[2] = pick("$1", "x-$1-$2", "", "${1}y", "$$")
		n.Args[3] = pick("job", "instance", "le", "__name__", "none")
		n.Args[4] = pick("(.*)", "(h)(.*)", "a|b", "(.).*", "")
	case "label_join":
		n.Args[1] = pick("new", "job", "__name__")
		n.Args[2] = pick(",", "", "-")
	}
}

// matching changes the way in which the series of two vectors match.
func (g *generator) matching(n *parser.BinaryExpr) {
	if g.rnd.Intn(3) > 0 || n.VectorMatching == nil || n.LHS.Type() != parser.ValueTypeVector || n.RHS.Type() != parser.ValueTypeVector {
		return
	}
	names := []string{"job", "instance", "le", "zone"}
	n.VectorMatching.On = g.rnd.Intn(2) == 0
	n.VectorMatching.MatchingLabels = names[:g.rnd.Intn(3)]
	if n.Op.IsSetOperator() {
		return
	}
	n.VectorMatching.Include = nil
	n.VectorMatching.Card = []parser.VectorMatchCardinality{parser.CardOneToOne, parser.CardManyToOne, parser.CardOneToMany}[g.rnd.Intn(3)]
	if n.VectorMatching.Card != parser.CardOneToOne && g.rnd.Intn(2) == 0 {
		n.VectorMatching.Include = names[2:][:g.rnd.Intn(3)]
	}
}
