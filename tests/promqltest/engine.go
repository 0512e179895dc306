package promqltest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/prometheus/prometheus/util/stats"
)

// engine answers queries by the HTTP API of the store that it is given.
type engine struct{}

func (engine) NewInstantQuery(_ context.Context, q storage.Queryable, opts promql.QueryOpts, text string, ts time.Time) (promql.Query, error) {
	return newQuery(q, opts, "query", text, url.Values{"time": {seconds(ts)}}), nil
}

func (engine) NewRangeQuery(_ context.Context, q storage.Queryable, opts promql.QueryOpts, text string, start, end time.Time, step time.Duration) (promql.Query, error) {
	values := url.Values{
		"start": {seconds(start)}, "end": {seconds(end)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	}
	return newQuery(q, opts, "query_range", text, values), nil
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

// query is one query.
type query struct {
	address string
	text    string
	values  url.Values
}

func newQuery(q storage.Queryable, opts promql.QueryOpts, operation, text string, values url.Values) *query {
	if opts != nil && opts.LookbackDelta() > 0 {
		values.Set("lookback_delta", strconv.FormatFloat(opts.LookbackDelta().Seconds(), 'f', -1, 64))
	}
	values.Set("query", text)
	return &query{address: q.(*server).address + "/api/v1/" + operation, text: text, values: values}
}

func (q *query) Close()                   {}
func (q *query) Cancel()                  {}
func (q *query) String() string           { return q.text }
func (q *query) Stats() *stats.Statistics { return nil }
func (q *query) Statement() parser.Statement {
	expr, err := parser.NewParser(options).ParseExpr(q.text)
	if err != nil {
		return nil
	}
	return &parser.EvalStmt{Expr: expr}
}

// told is an answer in JSON.
type told struct {
	Status   string
	Error    string
	Warnings []string
	Infos    []string
	Data     struct {
		ResultType string
		Result     json.RawMessage
	}
}

func (q *query) Exec(context.Context) *promql.Result {
	response, err := http.PostForm(q.address, q.values)
	if err != nil {
		return &promql.Result{Err: err}
	}
	defer response.Body.Close()
	var answer told
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return &promql.Result{Err: err}
	}
	if answer.Status != "success" {
		text := strings.TrimPrefix(answer.Error, `invalid parameter "query": `)
		return &promql.Result{Err: fmt.Errorf("%s", text)}
	}
	value, err := value(answer)
	notes := annotations.New()
	for _, text := range answer.Warnings {
		text = strings.TrimPrefix(text, "PromQL warning: ")
		notes.Add(fmt.Errorf("%w: %s", annotations.PromQLWarning, text))
	}
	for _, text := range answer.Infos {
		text = strings.TrimPrefix(text, "PromQL info: ")
		notes.Add(fmt.Errorf("%w: %s", annotations.PromQLInfo, text))
	}
	return &promql.Result{Value: value, Err: err, Warnings: *notes}
}

// point is a time in seconds and a value as text.
type point [2]any

func (p point) read() (int64, float64, error) {
	at, isTime := p[0].(float64)
	text, isText := p[1].(string)
	if !isTime || !isText {
		return 0, 0, fmt.Errorf("not a point: %v", p)
	}
	value, err := strconv.ParseFloat(text, 64)
	return int64(math.Round(at * 1000)), value, err
}

// value reads the data of an answer.
func value(answer told) (parser.Value, error) {
	data := answer.Data
	switch data.ResultType {
	case "scalar":
		var read point
		if err := json.Unmarshal(data.Result, &read); err != nil {
			return nil, err
		}
		t, v, err := read.read()
		return promql.Scalar{T: t, V: v}, err
	case "string":
		var read point
		if err := json.Unmarshal(data.Result, &read); err != nil {
			return nil, err
		}
		return promql.String{T: int64(read[0].(float64) * 1000), V: read[1].(string)}, nil
	}
	var list []struct {
		Metric map[string]string
		Value  *point
		Values []point
	}
	if err := json.Unmarshal(data.Result, &list); err != nil {
		return nil, err
	}
	vector, matrix := promql.Vector{}, promql.Matrix{}
	for _, item := range list {
		metric := labels.FromMap(item.Metric)
		if item.Value != nil {
			t, v, err := item.Value.read()
			if err != nil {
				return nil, err
			}
			vector = append(vector, promql.Sample{Metric: metric, T: t, F: v})
			continue
		}
		one := promql.Series{Metric: metric}
		for _, p := range item.Values {
			t, v, err := p.read()
			if err != nil {
				return nil, err
			}
			one.Floats = append(one.Floats, promql.FPoint{T: t, F: v})
		}
		matrix = append(matrix, one)
	}
	if data.ResultType == "vector" {
		return vector, nil
	}
	return matrix, nil
}
