// Package promqltest compares Holdfast's PromQL with that of Prometheus.
package promqltest

import (
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// node is a node of a tree, in the form that parse_query answers.
type node = map[string]any

// tree returns the tree of an expression as parse_query answers it.
func tree(expr parser.Expr) any {
	switch e := expr.(type) {
	case nil:
		return nil
	case *parser.NumberLiteral:
		return node{"type": "numberLiteral", "val": number(e.Val)}
	case *parser.StringLiteral:
		return node{"type": "stringLiteral", "val": e.Val}
	case *parser.ParenExpr:
		return node{"type": "parenExpr", "expr": tree(e.Expr)}
	case *parser.UnaryExpr:
		return node{"type": "unaryExpr", "op": e.Op.String(), "expr": tree(e.Expr)}
	case *parser.VectorSelector:
		return selector("vectorSelector", e)
	case *parser.MatrixSelector:
		out := selector("matrixSelector", e.VectorSelector.(*parser.VectorSelector))
		out["range"] = e.Range.Milliseconds()
		out["rangeExpr"] = duration(e.RangeExpr)
		return out
	case *parser.SubqueryExpr:
		return node{
			"type": "subquery", "expr": tree(e.Expr),
			"range": e.Range.Milliseconds(), "rangeExpr": duration(e.RangeExpr),
			"step": e.Step.Milliseconds(), "stepExpr": duration(e.StepExpr),
			"offset": e.OriginalOffset.Milliseconds(), "offsetExpr": duration(e.OriginalOffsetExpr),
			"timestamp": e.Timestamp, "startOrEnd": startOrEnd(e.StartOrEnd),
		}
	case *parser.AggregateExpr:
		return node{
			"type": "aggregation", "op": e.Op.String(), "expr": tree(e.Expr), "param": tree(e.Param),
			"grouping": list(e.Grouping), "without": e.Without,
		}
	case *parser.Call:
		args := []any{}
		for _, arg := range e.Args {
			args = append(args, tree(arg))
		}
		function := node{
			"name": e.Func.Name, "argTypes": e.Func.ArgTypes, "variadic": e.Func.Variadic,
			"returnType": e.Func.ReturnType,
		}
		return node{"type": "call", "func": function, "args": args}
	case *parser.BinaryExpr:
		var matching any
		if m := e.VectorMatching; m != nil {
			matching = node{
				"card": m.Card.String(), "labels": list(m.MatchingLabels), "on": m.On,
				"include":    list(m.Include),
				"fillValues": node{"lhs": m.FillValues.LHS, "rhs": m.FillValues.RHS},
			}
		}
		return node{
			"type": "binaryExpr", "op": e.Op.String(), "lhs": tree(e.LHS), "rhs": tree(e.RHS),
			"matching": matching, "bool": e.ReturnBool,
		}
	}
	panic("a node of a new kind")
}

func selector(kind string, s *parser.VectorSelector) node {
	return node{
		"type": kind, "name": s.Name, "matchers": matchers(s.LabelMatchers),
		"offset": s.OriginalOffset.Milliseconds(), "offsetExpr": duration(s.OriginalOffsetExpr),
		"timestamp": s.Timestamp, "startOrEnd": startOrEnd(s.StartOrEnd),
		"anchored": s.Anchored, "smoothed": s.Smoothed,
	}
}

func matchers(all []*labels.Matcher) []node {
	out := []node{}
	for _, m := range all {
		out = append(out, node{"name": m.Name, "value": m.Value, "type": m.Type.String()})
	}
	return out
}

// duration returns the tree of a duration within brackets or behind offset.
func duration(expr parser.Expr) any {
	switch e := expr.(type) {
	case *parser.DurationExpr:
		if e == nil {
			return nil
		}
		return node{
			"type": "durationExpr", "op": e.Op.String(), "wrapped": e.Wrapped,
			"lhs": duration(e.LHS), "rhs": duration(e.RHS),
		}
	case *parser.NumberLiteral:
		return node{"type": "numberLiteral", "val": number(e.Val), "duration": e.Duration}
	}
	return nil
}

func number(value float64) string {
	return strconv.FormatFloat(value, 'f', -1, 64)
}

func startOrEnd(item parser.ItemType) any {
	if item == 0 {
		return nil
	}
	return item.String()
}

func list(names []string) []string {
	return append([]string{}, names...)
}
