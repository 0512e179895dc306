package promqltest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
)

// server is a series store of its own process. It implements storage.Storage as far as the runner of
// Prometheus' tests uses it.
type server struct {
	storage.Queryable
	storage.ChunkQueryable
	storage.Appendable
	process *exec.Cmd
	folder  string
	address string
}

// start starts a series store on an empty folder.
func start(t testing.TB) *server {
	folder, err := os.MkdirTemp("", "promqltest")
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(os.Getenv("HOLDFAST"), "series", "serve", "--data", folder+"/data",
		"--http", "127.0.0.1:0", "--age-max", "36500days", "--wal", "off",
		"--resp", "off", "--opentsdb", "off", "--udp", "off")
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	process.Stderr = os.Stderr
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "ready: "); ok {
			go io.Copy(io.Discard, out)
			return &server{process: process, folder: folder, address: strings.TrimSuffix(address, "/")}
		}
	}
	t.Fatal("the series store did not start")
	return nil
}

func (s *server) Querier(int64, int64) (storage.Querier, error) {
	return storage.NoopQuerier(), nil
}

func (s *server) StartTime() (int64, error) { return 0, nil }

func (s *server) Close() error {
	s.process.Process.Kill()
	s.process.Wait()
	return os.RemoveAll(s.folder)
}

// AppenderV2 returns an appender that sends its samples by remote write.
func (s *server) AppenderV2(context.Context) storage.AppenderV2 {
	return &appender{server: s, index: map[string]int{}}
}

// appender collects samples. Histograms are left out.
type appender struct {
	server *server
	index  map[string]int
	series []series
}

type series struct {
	labels  labels.Labels
	samples []byte
}

func (a *appender) Append(_ storage.SeriesRef, ls labels.Labels, _, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	if h != nil || fh != nil {
		return 0, nil
	}
	key := ls.String()
	at, known := a.index[key]
	if !known {
		at = len(a.series)
		a.index[key] = at
		a.series = append(a.series, series{labels: ls})
	}
	// Encoded by hand: the generated encoder leaves out a value of -0.
	sample := binary.LittleEndian.AppendUint64([]byte{1<<3 | 1}, math.Float64bits(v))
	sample = append(sample, 2<<3)
	sample = binary.AppendUvarint(sample, uint64(t))
	a.series[at].samples = field(a.series[at].samples, 2, sample)
	return 0, nil
}

func (a *appender) AppendExemplar(storage.SeriesRef, labels.Labels, exemplar.Exemplar) (storage.SeriesRef, error) {
	return 0, nil
}

func (a *appender) Rollback() error { return nil }

func (a *appender) Commit() error {
	var request []byte
	for _, s := range a.series {
		var encoded []byte
		s.labels.Range(func(l labels.Label) {
			encoded = field(encoded, 1, field(field(nil, 1, []byte(l.Name)), 2, []byte(l.Value)))
		})
		request = field(request, 1, append(encoded, s.samples...))
	}
	if request == nil {
		return nil
	}
	body := bytes.NewReader(snappy.Encode(nil, request))
	sent, err := http.NewRequest("POST", a.server.address+"/api/v1/write", body)
	if err != nil {
		return err
	}
	sent.Header.Set("Content-Type", "application/x-protobuf")
	sent.Header.Set("Content-Encoding", "snappy")
	sent.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	response, err := http.DefaultClient.Do(sent)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(response.Body)
		return errors.New(fmt.Sprint(response.Status, ": ", string(text)))
	}
	return nil
}

// field appends a field of bytes to a message.
func field(message []byte, number byte, value []byte) []byte {
	message = append(message, number<<3|2)
	message = binary.AppendUvarint(message, uint64(len(value)))
	return append(message, value...)
}
