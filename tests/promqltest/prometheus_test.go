package promqltest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// scrapes is the number of scrapes that Prometheus sends to the store, one each second.
const scrapes = 45

// mixed are the queries that are compared.
var mixed = []string{
	`up`, `test_gauge`, `test_gauge{kind!="a"}`, `{__name__=~"test_.+", kind=~"a|c"}`, `test_special`,
	`test_gauge offset 7s`, `test_gauge @ end()`, `-test_gauge`, `test_gauge > 50`, `test_gauge > bool 50`,
	`rate(test_requests_total[10s])`, `irate(test_requests_total[10s])`, `increase(test_requests_total[7s])`,
	`sum by (job) (rate(test_requests_total[10s]))`, `sum without (kind) (test_gauge)`,
	`avg by (kind) (test_gauge)`, `max(test_gauge)`, `min(test_special)`, `count by (__name__) ({job="test"})`,
	`topk(2, test_gauge)`, `bottomk(1, test_gauge)`, `quantile(0.9, test_gauge)`, `stddev(test_gauge)`,
	`group(test_sometimes)`, `count_values("v", test_sometimes)`, `test_sometimes`, `absent(test_sometimes)`,
	`histogram_quantile(0.9, rate(test_seconds_bucket[10s]))`,
	`histogram_quantile(0.5, sum by (le) (increase(test_seconds_bucket[10s])))`,
	`test_gauge / on (kind) group_left test_requests_total`, `test_gauge and on (kind) test_sometimes`,
	`test_gauge or test_sometimes`, `test_gauge unless on (kind) test_sometimes`,
	`avg_over_time(test_gauge[5s])`, `max_over_time(test_special[9s])`, `count_over_time(test_sometimes[9s])`,
	`quantile_over_time(0.3, test_gauge[9s])`, `deriv(test_gauge[9s])`, `predict_linear(test_gauge[9s], 60)`,
	`changes(test_sometimes[20s])`, `resets(test_requests_total[20s])`, `last_over_time(test_sometimes[20s])`,
	`max_over_time(rate(test_requests_total[5s])[10s:2s])`, `label_replace(test_gauge, "x", "$1!", "kind", "(.*)")`,
	`timestamp(test_gauge)`, `sum(rate(prometheus_http_requests_total[10s])) by (handler)`,
	`clamp_max(test_gauge, 40)`, `present_over_time(test_sometimes[3s])`, `sort(test_gauge)`, `time()`,
	`rate(go_gc_duration_seconds_count[20s])`, `scalar(max(test_gauge)) + vector(1)`, `test_gauge ^ 0.5 % 3`,
}

// TestPrometheus has a real Prometheus send to the store what it scrapes. A second one without data
// of its own answers by remote read as the store itself does.
func TestPrometheus(t *testing.T) {
	program := os.Getenv("PROMETHEUS")
	if program == "" || os.Getenv("HOLDFAST") == "" {
		t.Skip("PROMETHEUS names no program: run tests/prometheus.sh")
	}
	store := start(t)
	defer store.Close()
	var served atomic.Int64
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		export(w, served.Add(1))
	}))
	defer exporter.Close()
	begin := time.Now().Truncate(time.Second)
	first := startPrometheus(t, program, fmt.Sprintf(`
global: {scrape_interval: 1s}
scrape_configs:
  - {job_name: test, static_configs: [{targets: ["%s"]}]}
  - {job_name: prometheus, static_configs: [{targets: ["SELF"]}]}
remote_write:
  - {url: "%s/api/v1/write", queue_config: {batch_send_deadline: 1s}}
`, strings.TrimPrefix(exporter.URL, "http://"), store.address))
	until(t, "enough scrapes", func() bool { return served.Load() > scrapes })
	end := time.Now().Truncate(time.Second)
	until(t, "the samples in the store", func() bool {
		return rangeQuery(t, store.address, "up", end, end).Data.ResultType == "matrix" &&
			strings.Count(string(rangeQuery(t, store.address, "timestamp(up) > "+seconds(end), end, end.Add(2*time.Second)).Data.Result), "metric") == 2
	})
	first.stop(t)
	second := startPrometheus(t, program, fmt.Sprintf(`
remote_read:
  - {url: "%s/api/v1/read", read_recent: true}
`, store.address))
	defer second.stop(t)
	found := 0
	for _, query := range mixed {
		mine := rangeQuery(t, store.address, query, begin, end)
		theirs := rangeQuery(t, second.address, query, begin, end)
		found += sameAnswer(t, query, mine, theirs)
	}
	t.Logf("%d queries, %d points are equal", len(mixed), found)
}

// export writes metrics that depend on the number of the scrape.
func export(w io.Writer, scrape int64) {
	fmt.Fprintln(w, "# TYPE test_requests_total counter\n# TYPE test_seconds histogram")
	for i, kind := range []string{"a", "b", "c", "d"} {
		step := int64(i + 1)
		fmt.Fprintf(w, "test_gauge{kind=%q} %v\n", kind, 50+40*math.Sin(float64(scrape*step)/7))
		// It is reset now and then.
		fmt.Fprintf(w, "test_requests_total{kind=%q} %d\n", kind, scrape*step%(20*step+3))
		// It comes and goes, so that Prometheus writes markers.
		if scrape/(3*step)%2 == 0 {
			fmt.Fprintf(w, "test_sometimes{kind=%q} %d\n", kind, scrape/4)
		}
		for n, le := range []string{"0.1", "1", "10", "+Inf"} {
			fmt.Fprintf(w, "test_seconds_bucket{kind=%q,le=%q} %d\n", kind, le, scrape*(step+int64(n)))
		}
		fmt.Fprintf(w, "test_seconds_count{kind=%q} %d\ntest_seconds_sum{kind=%q} %d\n", kind, scrape*(step+3), kind, scrape)
	}
	special := []string{"NaN", "+Inf", "-Inf", "-0", "0", "1e-310", "1.7e308"}
	fmt.Fprintf(w, "test_special %s\n", special[scrape%int64(len(special))])
}

// prometheus is a Prometheus of its own process.
type prometheus struct {
	process *exec.Cmd
	address string
}

var listening = regexp.MustCompile(`msg="Listening on" .*address=(127\.0\.0\.1:\d+)`)

// startPrometheus starts a Prometheus on an empty folder. SELF in its configuration is its address.
func startPrometheus(t *testing.T, program, configuration string) *prometheus {
	folder := t.TempDir()
	file := filepath.Join(folder, "prometheus.yml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.ReplaceAll(configuration, "SELF", "127.0.0.1:9090"))
	process := exec.Command(program, "--config.file", file, "--storage.tsdb.path", folder+"/data",
		"--web.listen-address", "127.0.0.1:0", "--web.enable-lifecycle")
	out, err := process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	// Where the test ends early.
	t.Cleanup(func() { process.Process.Kill() })
	lines := bufio.NewScanner(out)
	p := &prometheus{process: process}
	for p.address == "" && lines.Scan() {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			p.address = "http://" + found[1]
		}
	}
	if p.address == "" {
		t.Fatal("Prometheus did not start")
	}
	go io.Copy(io.Discard, out)
	until(t, "Prometheus ready", func() bool {
		response, err := http.Get(p.address + "/-/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	if strings.Contains(configuration, "SELF") {
		write(strings.ReplaceAll(configuration, "SELF", strings.TrimPrefix(p.address, "http://")))
		response, err := http.Post(p.address+"/-/reload", "", nil)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal("Prometheus did not read its configuration again", err)
		}
		response.Body.Close()
	}
	return p
}

func (p *prometheus) stop(t *testing.T) {
	p.process.Process.Signal(syscall.SIGTERM)
	if err := p.process.Wait(); err != nil {
		t.Error(err)
	}
}

// until waits until something is so, for two minutes at most.
func until(t *testing.T, what string, isSo func() bool) {
	for deadline := time.Now().Add(2 * time.Minute); !isSo(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within two minutes: ", what)
		}
	}
}

func rangeQuery(t *testing.T, address, query string, begin, end time.Time) told {
	values := url.Values{"query": {query}, "start": {seconds(begin)}, "end": {seconds(end)}, "step": {"1"}}
	response, err := http.PostForm(address+"/api/v1/query_range", values)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var answer told
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(query, err)
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s", query, answer.Error)
	}
	return answer
}

// same compares two answers and returns the number of their points. Values differ by 1e-12 at most: a
// sum across series depends on their order.
func sameAnswer(t *testing.T, query string, mine, theirs told) int {
	if !slices.Equal(mine.Warnings, theirs.Warnings) || !slices.Equal(mine.Infos, theirs.Infos) {
		t.Errorf("%s: notes are %q %q, not %q %q", query, mine.Warnings, mine.Infos, theirs.Warnings, theirs.Infos)
	}
	got, wanted := readMatrix(t, mine), readMatrix(t, theirs)
	if len(got) != len(wanted) {
		t.Errorf("%s: %d series, not %d", query, len(got), len(wanted))
		return 0
	}
	points := 0
	for i, one := range got {
		other := wanted[i]
		if !labels.Equal(one.Metric, other.Metric) || len(one.Floats) != len(other.Floats) {
			t.Errorf("%s: %s has %d points, not %s with %d", query, one.Metric, len(one.Floats), other.Metric, len(other.Floats))
			continue
		}
		for j, p := range one.Floats {
			if o := other.Floats[j]; p.T != o.T || !near(p.F, o.F) {
				t.Errorf("%s: %s: %s, not %s", query, one.Metric, p, o)
			}
		}
		points += len(one.Floats)
	}
	return points
}

func readMatrix(t *testing.T, answer told) promql.Matrix {
	read, err := value(answer)
	if err != nil {
		t.Fatal(err)
	}
	found := read.(promql.Matrix)
	slices.SortFunc(found, func(a, b promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	return found
}

func near(a, b float64) bool {
	return strconv.FormatFloat(a, 'g', -1, 64) == strconv.FormatFloat(b, 'g', -1, 64) ||
		math.Abs(a-b) <= 1e-12*math.Abs(b)
}
