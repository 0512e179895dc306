package promqltest

import (
	"context"
	"fmt"
	"math"
	"math/rand"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	config_util "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	stale "github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

// readSample is a time in milliseconds and the bits of a value.
type readSample struct {
	time int64
	bits uint64
}

// writtenSeries is a series of the store.
type writtenSeries struct {
	labels  labels.Labels
	samples []readSample
}

// readClient returns Prometheus' own client, which accepts one form of the answer.
func readClient(t *testing.T, s *server, form prompb.ReadRequest_ResponseType) remote.ReadClient {
	address, err := url.Parse(s.address + "/api/v1/read")
	if err != nil {
		t.Fatal(err)
	}
	client, err := remote.NewReadClient("test", &remote.ClientConfig{
		URL:                   &config_util.URL{URL: address},
		Timeout:               model.Duration(time.Minute),
		ChunkedReadLimit:      5e7,
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{form},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// collect reads a set of series. Frames of one series follow each other and are joined.
func collect(t *testing.T, set storage.SeriesSet) ([]string, map[string][]readSample) {
	var names []string
	found := map[string][]readSample{}
	var last labels.Labels
	for set.Next() {
		series := set.At()
		name := series.Labels().String()
		if _, known := found[name]; !known {
			if len(names) > 0 && labels.Compare(last, series.Labels()) >= 0 {
				t.Fatalf("%s comes after %s", name, last)
			}
			names = append(names, name)
		}
		last = series.Labels().Copy()
		samples := series.Iterator(nil)
		for samples.Next() == chunkenc.ValFloat {
			at, v := samples.At()
			found[name] = append(found[name], readSample{at, math.Float64bits(v)})
		}
		if err := samples.Err(); err != nil {
			t.Fatal(name, err)
		}
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	return names, found
}

// randomSamples returns samples with gaps, markers, and values whose bits are easily lost.
func randomSamples(random *rand.Rand, count int) []readSample {
	special := []uint64{
		stale.StaleNaN, stale.NormalNaN, 0x7ff4000000000001, 0xfff8dead_beef0001, 1 << 63, 0, 1,
		math.Float64bits(math.Inf(1)), math.Float64bits(math.Inf(-1)), math.Float64bits(math.MaxFloat64),
	}
	interval := []int64{1, 10, 1000, 15_000}[random.Intn(4)]
	at, level := int64(1_000_000), 0.0
	var out []readSample
	for range count {
		switch random.Intn(20) {
		case 0:
			at += 1 + random.Int63n(1<<(4+random.Intn(30)))
		case 1:
			at += 1 + random.Int63n(interval)
		default:
			at += interval
		}
		bits := math.Float64bits(level)
		switch random.Intn(10) {
		case 0:
			bits = special[random.Intn(len(special))]
		case 1:
			bits = random.Uint64()
		case 2, 3, 4:
			level += float64(random.Intn(100))
		}
		out = append(out, readSample{at, bits})
	}
	return out
}

// within returns the samples of a range of times, both ends included.
func within(samples []readSample, start, end int64) []readSample {
	var out []readSample
	for _, s := range samples {
		if start <= s.time && s.time <= end {
			out = append(out, s)
		}
	}
	return out
}

// writeLines writes lines of the Influx protocol, whose times are nanoseconds.
func writeLines(t *testing.T, s *server, lines []string) {
	response, err := http.Post(s.address+"/write", "", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		t.Fatal(response.Status)
	}
}

// writeRandom writes random series and returns their samples by labels.
func writeRandom(t *testing.T, s *server, random *rand.Rand) map[string]writtenSeries {
	written := map[string]writtenSeries{}
	appender := s.AppenderV2(context.Background())
	for i, count := range []int{1, 2, 119, 120, 121, 240, 500, 9000, 30, 30, 30, 30} {
		ls := labels.FromStrings("__name__", "read.test", "n", fmt.Sprint(i), "job", fmt.Sprint("j", i%3), "ü", "\"x\"\n")
		samples := randomSamples(random, count)
		for _, one := range samples {
			appender.Append(0, ls, 0, one.time, math.Float64frombits(one.bits), nil, nil, storage.AppendV2Options{})
		}
		written[ls.String()] = writtenSeries{ls, samples}
	}
	if err := appender.Commit(); err != nil {
		t.Fatal(err)
	}
	// Several samples in one millisecond: the last one is returned.
	var lines []string
	var last []readSample
	for i := range 600 {
		at, v := 2_000_000_000_000+int64(i)*400_000, float64(random.Intn(50))
		lines = append(lines, fmt.Sprintf("within,job=j0 ms=%v %d", v, at))
		ms := at / 1_000_000
		if len(last) == 0 || last[len(last)-1].time != ms {
			last = append(last, readSample{time: ms})
		}
		last[len(last)-1].bits = math.Float64bits(v)
	}
	writeLines(t, s, lines)
	ls := labels.FromStrings("__name__", "within_ms", "job", "j0")
	written[ls.String()] = writtenSeries{ls, last}
	return written
}

// TestRemoteRead reads with Prometheus' own client what was written, bit for bit, in both forms.
func TestRemoteRead(t *testing.T) {
	if os.Getenv("HOLDFAST") == "" {
		t.Skip("HOLDFAST names no program: run tests/promqltest.sh")
	}
	s := start(t)
	defer s.Close()
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	random := rand.New(rand.NewSource(seed))
	written := writeRandom(t, s, random)
	all := &prompb.LabelMatcher{Type: prompb.LabelMatcher_NEQ, Name: "__name__"}
	some := &prompb.LabelMatcher{Type: prompb.LabelMatcher_RE, Name: "job", Value: "j0|j2"}
	other := &prompb.LabelMatcher{Type: prompb.LabelMatcher_NRE, Name: "n", Value: "1.*|"}
	for _, form := range []prompb.ReadRequest_ResponseType{prompb.ReadRequest_SAMPLES, prompb.ReadRequest_STREAMED_XOR_CHUNKS} {
		client := readClient(t, s, form)
		queries := []*prompb.Query{{StartTimestampMs: math.MinInt64, EndTimestampMs: math.MaxInt64, Matchers: []*prompb.LabelMatcher{all}}}
		for range 40 {
			start := 1_000_000 + random.Int63n(100_000)
			query := &prompb.Query{StartTimestampMs: start, EndTimestampMs: start + random.Int63n(1<<(1+random.Intn(40))) - 1}
			query.Matchers = [][]*prompb.LabelMatcher{{all}, {some}, {some, other}, nil}[random.Intn(4)]
			queries = append(queries, query)
		}
		for _, query := range queries {
			// Not sorted by the client: the order of the answer is checked.
			set, err := client.Read(context.Background(), query, false)
			if err != nil {
				t.Fatal(form, query, err)
			}
			names, found := collect(t, set)
			compareAnswer(t, fmt.Sprint(form, query), written, query, names, found)
		}
	}
}

// compareAnswer compares an answer with what was written.
func compareAnswer(t *testing.T, what string, written map[string]writtenSeries, query *prompb.Query, names []string, found map[string][]readSample) {
	matchers, err := remote.FromLabelMatchers(query.Matchers)
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for name, one := range written {
		expected := within(one.samples, query.StartTimestampMs, query.EndTimestampMs)
		for _, m := range matchers {
			if !m.Matches(one.labels.Get(m.Name)) {
				expected = nil
			}
		}
		if len(expected) > 0 {
			series++
		}
		got := found[name]
		if len(got) != len(expected) {
			t.Fatalf("%s: %s: %d samples, not %d", what, name, len(got), len(expected))
		}
		for i := range got {
			if got[i] != expected[i] {
				t.Fatalf("%s: %s: sample %d is %x, not %x", what, name, i, got[i], expected[i])
			}
		}
	}
	if series != len(names) {
		t.Fatalf("%s: %d series, not %d", what, len(names), series)
	}
}
