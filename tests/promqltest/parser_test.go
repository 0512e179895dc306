package promqltest

import (
	"encoding/json"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// options are those of the runner of Prometheus' own tests, without what is out of scope.
var options = parser.Options{EnableExperimentalFunctions: true, EnableUnquotedUTF8Names: true}

// outOfScope are the functions that Holdfast refuses by name.
var outOfScope = regexp.MustCompile(`\b(info|integral|histogram_quantiles|start_timestamp)\(`)

// source returns the folder of Prometheus' sources.
func source(t *testing.T) string {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/prometheus").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// answer is what an operation answers.
type answer struct {
	Status string `json:"status"`
	Data   any    `json:"data"`
	Error  string `json:"error"`
}

// ask sends a query to an operation of the server under test.
func ask(t *testing.T, operation, query string) answer {
	address := os.Getenv("HOLDFAST_SERIES")
	if address == "" {
		t.Skip("HOLDFAST_SERIES names no series port: run tests/promqltest.sh")
	}
	response, err := http.PostForm(address+"/api/v1/"+operation, url.Values{"query": {query}})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var told answer
	if err := json.NewDecoder(response.Body).Decode(&told); err != nil {
		t.Fatalf("%s %q: %v", operation, query, err)
	}
	return told
}

// compare parses a text with both parsers. It returns true if the text is an expression.
func compare(t *testing.T, text string) bool {
	expr, err := parser.NewParser(options).ParseExpr(text)
	ours := ask(t, "parse_query", text)
	if err != nil {
		if ours.Status != "error" {
			t.Errorf("%q is accepted, and not by Prometheus: %v", text, err)
		}
		return false
	}
	if ours.Status != "success" {
		t.Errorf("%q is refused: %s", text, ours.Error)
		return true
	}
	// Through JSON, so that numbers have one type.
	encoded, err := json.Marshal(tree(expr))
	if err != nil {
		t.Fatal(err)
	}
	var theirs any
	if err := json.Unmarshal(encoded, &theirs); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(theirs, ours.Data) {
		told, _ := json.Marshal(ours.Data)
		t.Errorf("%q has another tree:\n%s\n%s", text, encoded, told)
	}
	return true
}

// TestExpressionsOfEvaluations compares every expression of Prometheus' test files.
func TestExpressionsOfEvaluations(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(source(t), "promql/promqltest/testdata/*.test"))
	if err != nil || len(files) == 0 {
		t.Fatal("no test files", err)
	}
	line := regexp.MustCompile(`(?m)^\s*eval(?:_\w+)?\s+(?:instant\s+(?:at\s+\S+)?|range\s+from\s+\S+\s+to\s+\S+\s+step\s+\S+)\s+(.+?)\s*$`)
	read := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range line.FindAllStringSubmatch(string(text), -1) {
			if !outOfScope.MatchString(found[1]) && !read[found[1]] {
				read[found[1]] = compare(t, found[1])
			}
		}
	}
	expressions := 0
	for _, isExpression := range read {
		if isExpression {
			expressions++
		}
	}
	t.Logf("%d texts, %d expressions", len(read), expressions)
	if expressions < 1800 {
		t.Errorf("only %d expressions were found", expressions)
	}
}

// TestInputsOfTheParser compares every input of the test of Prometheus' parser.
func TestInputsOfTheParser(t *testing.T) {
	file := filepath.Join(source(t), "promql/parser/parse_test.go")
	syntax, err := goparser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	good, bad := 0, 0
	ast.Inspect(syntax, func(n ast.Node) bool {
		pair, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		name, isName := pair.Key.(*ast.Ident)
		literal, isLiteral := pair.Value.(*ast.BasicLit)
		if !isName || !isLiteral || name.Name != "input" {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil || outOfScope.MatchString(text) {
			return true
		}
		if compare(t, text) {
			good++
		} else {
			bad++
		}
		return true
	})
	t.Logf("%d expressions, %d others", good, bad)
	if good < 200 || bad < 160 {
		t.Errorf("only %d expressions and %d others were found", good, bad)
	}
}

// TestPrintedExpressions compares the layout of each input of Prometheus' printers.
func TestPrintedExpressions(t *testing.T) {
	for _, text := range []string{
		`sum by (job) (rate(http_requests_total{code=~"5.."}[5m])) / ignoring(code) group_left() sum(rate(http_requests_total[5m]))`,
		`histogram_quantile(0.9, sum by (le, job) (rate(request_duration_seconds_bucket{job="a-long-name-of-a-job"}[10m])))`,
		`(((aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa + bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb)))`,
		`max_over_time(deriv(rate(distance_covered_total{a="aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}[5s])[30s:5s])[10m:])`,
		`topk(5, foo) unless -bar offset 5m and on () baz @ 12.5`,
	} {
		expr, err := parser.NewParser(options).ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if ours := ask(t, "format_query", text); ours.Data != parser.Prettify(expr) {
			t.Errorf("%q:\n%v\n%s", text, ours.Data, parser.Prettify(expr))
		}
	}
}
