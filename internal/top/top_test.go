// SPDX-License-Identifier: Apache-2.0

package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/internal/meters/fakemachine"
	"github.com/nebulaio/nebulaio/internal/plain"
)

// busy is a sample in which everything happens.
func busy() *meters.Sample {
	s := &meters.Sample{Version: 1, Time: time.Date(2026, 11, 17, 12, 0, 0, 0, time.UTC), Seconds: 1, Host: "node-7"}
	s.CPU = meters.CPU{Count: 64, UserShare: 0.1, SystemShare: 0.2, IdleShare: 0.7}
	s.Memory = meters.Memory{Total: 256 << 30, Cached: 100 << 30, Dirty: 1 << 30, DirtyLimit: 4 << 30, HitShare: 0.5,
		CallsRate: 6e9}
	for i := range 6 {
		s.Disks = append(s.Disks, meters.Disk{Name: fmt.Sprintf("nvme%dn1", i), Mounts: []string{fmt.Sprintf("/data%d", i)},
			ReadRate: float64(i) * 1e9, ReadIOPS: float64(i) * 1e4, ReadLatency: 2e-4, Depth: 8, Busy: 0.97, ReadCeiling: 7e9,
			OfCeiling: float64(i) / 7})
	}
	s.Networks = []meters.Network{{Name: "eth0", Up: true, Speed: 12.5e9, ReceiveRate: 6e9, OfSpeed: 0.48}, {Name: "lo",
		Virtual: true, Up: true}}
	s.NFS = []meters.NFS{{Mount: "/home", ReadRate: 1e8, ReadTrip: 0.004}}
	s.GPUs = []meters.GPU{{Index: 0, Model: "NVIDIA H200", Busy: 0.4, MemoryBusy: 0.1, MemoryUsed: 70 << 30,
		MemoryTotal: 140 << 30,
		ReceiveRate: 20e9, LinkGen: 5, LinkWidth: 16, OfLink: 0.36, Watts: 300, Celsius: 55, Slowed: []string{"power cap"}}}
	s.CuFile = &meters.CuFile{Counted: true, ReadRate: 3e9, ReadIOPS: 3000}
	s.CGroups = []meters.CGroup{{Path: "/kubepods/pod1", Quota: 4, CPU: 4, ThrottledShare: 0.9}, {Path: "/quiet"}}
	s.Server = &meters.Server{Address: "http://127.0.0.1:9001", SendRate: 2e9, RequestRate: 500,
		DoorRates: map[string]float64{"direct": 1e9}}
	s.Processes = []meters.Process{{PID: 10, Name: "python3", Command: "/usr/bin/python3 train.py", ReadCallsRate: 1e9,
		CPU: 3, BusiestThread: 1},
		{PID: 11, Name: "dd", ReadCallsRate: 5e9, StorageReadRate: 5e9, CPU: 0.5, BusiestThread: -1},
		{PID: 12, Name: "evil\x1b[2Jname", Command: "evil\x1b]0;title\a", ReadCallsRate: 1, NebulaIO: true},
		{PID: 13, Name: "other", Unread: true, IOWait: 2}, {PID: 14, Name: "writer", WriteCallsRate: 2e9}}
	s.Missing = []meters.Missing{{Meter: "lustre", Reason: "the counters cannot be read", Fix: "run as root"}}
	return s
}

func verdict() bottleneck.Verdict {
	return bottleneck.Verdict{Bound: bottleneck.Storage, Cause: bottleneck.Disk, Resource: "nvme5n1",
		Why: "nvme5n1 is busy 97 % of the time with 5.00 GB/s", Next: []string{"use more disks"},
		Figures: []bottleneck.Figure{{Name: "gpu", Share: 0.4, Text: "GPU 0 busy 40 % of the time"}}}
}

func TestAScreenFits(t *testing.T) {
	s := busy()
	for _, width := range []int{1, 10, 20, 40, 79, 80, 120, 200} {
		for _, height := range []int{0, 1, 3, 10, 24, 50} {
			lines := View{Width: width, Height: height, All: true, Keys: keys}.Draw(s, verdict())
			if height > 0 && len(lines) > height {
				t.Errorf("%d lines in %d", len(lines), height)
			}
			for _, l := range lines {
				if plain.Columns(l) > width {
					t.Errorf("%d columns in %d: %q", plain.Columns(l), width, l)
				}
				if strings.ContainsAny(l, "\x1b\a") {
					t.Errorf("a control character is drawn: %q", l)
				}
			}
		}
	}
}

func text(v View) string { return strings.Join(v.Draw(busy(), verdict()), "\n") }

func TestAScreenShowsEachMeter(t *testing.T) {
	got := text(View{Width: 160})
	for _, want := range []string{"nebulaio top  node-7  2026-11-17 12:00:00",
		"limit  storage-bound (busy disk): nvme5n1 is busy 97 %",
		"do     use more disks", "hits about 50 % of 6.00 GB/s", "dirty 1.00 GiB (25 % of the limit)", "nvme5n1 /data5",
		"5.00 GB/s", "50k",
		"200 µs", "71 %", "eth0", "48 %", "nfs /home", "4.0 ms", "0 H200", "70.0 of 140 GiB", "20.0 GB/s", "gen 5 x16",
		"power cap",
		"nvidia-fs", "/kubepods/pod1", "90 %", "server http://127.0.0.1:9001", "direct 1.00 GB/s", "python3 train.py", "dd",
		"no lustre: the counters cannot be read (fix: run as root)"} {
		if !strings.Contains(got, want) {
			t.Errorf("the screen lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "/quiet") || strings.Contains(got, "\nlo ") {
		t.Error("idle rows are shown")
	}
	if all := text(View{Width: 160, All: true}); !strings.Contains(all, "/quiet") || !strings.Contains(all, "\nlo ") {
		t.Error("idle rows are not shown with All")
	}
}

func TestProcessesAreSortedAndFiltered(t *testing.T) {
	pids := func(v View) (out []string) {
		for _, row := range v.processGrid(busy()).rows {
			out = append(out, row[1])
		}
		return out
	}
	for order, want := range map[Order][]string{ByReads: {"11", "10", "12", "13", "14"}, ByWrites: {"14", "10", "11",
		"12", "13"},
		ByCPU: {"10", "11", "12", "13", "14"}, ByWait: {"13", "10", "11", "12", "14"}, ByName: {"11", "12", "13", "10",
			"14"}} {
		if got := pids(View{Order: order}); !slices.Equal(got, want) {
			t.Errorf("by %s: %v, expected %v", order, got, want)
		}
		slices.Reverse(want)
		if got := pids(View{Order: order, Reverse: true}); !slices.Equal(got, want) {
			t.Errorf("by %s, reversed: %v, expected %v", order, got, want)
		}
	}
	if got := pids(View{Filter: "TRAIN"}); !slices.Equal(got, []string{"10"}) {
		t.Errorf("filtered: %v", got)
	}
	v := View{Filter: "data3"}
	if rows := v.diskGrid(busy()).rows; len(rows) != 1 || !strings.HasPrefix(rows[0][0], "nvme3n1") {
		t.Errorf("filtered disks: %v", rows)
	}
	v = View{BySize: true}
	if rows := v.diskGrid(busy()).rows; !strings.HasPrefix(rows[0][0], "nvme5n1") {
		t.Errorf("disks by rate: %v", rows)
	}
}

func TestAVerdictDoesNotFlicker(t *testing.T) {
	a, b := bottleneck.Verdict{Bound: bottleneck.Storage, Resource: "x"}, bottleneck.Verdict{Bound: bottleneck.Nothing}
	var s steady
	for i, step := range []struct{ in, out bottleneck.Verdict }{{a, a}, {b, a}, {a, a}, {b, a}, {b, b}, {a, b}, {b, b},
		{a, b}, {a, a}} {
		if got := s.next(step.in); !same(got, step.out) {
			t.Errorf("step %d: %s, expected %s", i, got.Bound, step.out.Bound)
		}
	}
	first := a
	first.Why = "newer figures"
	if got := s.next(first); got.Why != "newer figures" {
		t.Errorf("old figures are shown: %q", got.Why)
	}
}

// list is a source of given samples.
type list struct {
	samples []*meters.Sample
	reads   int
	err     error
}

func (l *list) Next(context.Context) (*meters.Sample, error) {
	if l.reads == len(l.samples) {
		if l.err != nil {
			return nil, l.err
		}
		return nil, io.EOF
	}
	l.reads++
	return l.samples[l.reads-1], nil
}

// hosts returns samples that differ in their host.
func hosts(names ...string) (out []*meters.Sample) {
	for _, n := range names {
		s := busy()
		s.Host = n
		out = append(out, s)
	}
	return out
}

func newModel(l *list, replay bool) *model {
	return &model{ctx: context.Background(), source: l, view: View{Width: 100, Height: 30, Order: ByReads}, replay: replay}
}

// turn runs one command of the model and gives its message to the model, as the library does.
func (m *model) turn(cmd tea.Cmd) tea.Cmd {
	if cmd == nil {
		return nil
	}
	_, next := m.Update(cmd())
	return next
}

func (m *model) shows(text string) bool { return strings.Contains(strings.Join(m.lines(), "\n"), text) }

func TestKeysChangeTheView(t *testing.T) {
	m := newModel(&list{samples: hosts("a", "b")}, false)
	if !m.shows("reading the meters") {
		t.Error("nothing is shown before the first sample")
	}
	m.turn(m.Init())
	for _, c := range []struct {
		key, text string
		is        func() bool
	}{
		{"s", "s", func() bool { return m.view.Order == ByWrites && m.shows("[by write]") }},
		{"r", "r", func() bool { return m.view.Reverse }},
		{"o", "o", func() bool { return m.view.BySize }},
		{"a", "a", func() bool { return m.view.All }},
		{"w", "w", func() bool { return m.shows("GPU 0 busy 40") || m.shows("w hides") }},
		{"w", "w", func() bool { return !m.shows("w hides") }},
		{"?", "?", func() bool { return m.shows("of ceiling  share of the highest rate") }},
		{"esc", "", func() bool { return !m.shows("of ceiling  share of the highest rate") }},
		{"/", "/", func() bool { return m.shows("filter: _") }},
		{"q", "q", func() bool { return m.view.Filter == "q" && m.shows("filter: q_") }},
		{"backspace", "", func() bool { return m.view.Filter == "" }},
		{"d", "d", func() bool { return true }},
		{"enter", "", func() bool { return !m.typing && m.view.Filter == "d" && m.shows("filter: d") }},
		{"esc", "", func() bool { return m.view.Filter == "" }},
		{"x", "x", func() bool { return m.view.Filter == "" }},
	} {
		if m.press(c.key, c.text); !c.is() {
			t.Errorf("after %q:\n%s", c.key, strings.Join(m.lines(), "\n"))
		}
	}
	if m.press("q", "q") == nil {
		t.Error("q does not quit")
	}
	m.typing = true
	for range 100 {
		m.press("é", "é")
	}
	if len(m.view.Filter) > mostFilter {
		t.Errorf("a filter of %d bytes", len(m.view.Filter))
	}
}

func TestAPauseKeepsTheScreenButNotTheMeters(t *testing.T) {
	l := &list{samples: hosts("a", "b", "c", "d")}
	m := newModel(l, false)
	cmd := m.turn(m.Init())
	m.press("space", " ")
	cmd = m.turn(m.turn(cmd))
	if l.reads != 3 || !m.shows("node") && !m.shows("  a  ") || !m.shows("[paused]") {
		t.Errorf("%d samples were read:\n%s", l.reads, m.lines()[0])
	}
	m.press("n", "n")
	if !m.shows("  c  ") || !m.paused {
		t.Errorf("n does not show the newest sample: %s", m.lines()[0])
	}
	m.turn(cmd)
	if m.press("space", " "); !m.shows("  d  ") || m.shows("paused") {
		t.Errorf("after the pause: %s", m.lines()[0])
	}
}

func TestAReplayStopsInAPauseAndStepsOn(t *testing.T) {
	l := &list{samples: hosts("a", "b", "c", "d", "e")}
	m := newModel(l, true)
	cmd := m.turn(m.Init())
	m.press("p", "p")
	if cmd = m.turn(cmd); cmd != nil || l.reads != 2 || !m.shows("  a  ") {
		t.Fatalf("a paused replay goes on: %d samples, %s", l.reads, m.lines()[0])
	}
	m.turn(m.press("n", "n")) // shows b, which is there
	if !m.shows("  b  ") || l.reads != 2 {
		t.Errorf("%s", m.lines()[0])
	}
	m.turn(m.press("n", "n"))
	if !m.shows("  c  ") || l.reads != 3 || !m.paused {
		t.Errorf("%s", m.lines()[0])
	}
	cmd = m.press("p", "p")
	for range 2 {
		if m.press("p", "p") != nil {
			t.Error("two samples are under way")
		}
	}
	for cmd != nil {
		cmd = m.turn(cmd)
	}
	if !m.shows("  e  ") || !m.shows("[replay, end of the recording]") {
		t.Errorf("%s", m.lines()[0])
	}
}

func TestAnErrorOfTheSourceEndsTheProgram(t *testing.T) {
	broken := errors.New("broken")
	err := Run(t.Context(), &list{samples: hosts("a"), err: broken}, Options{In: blocked(t), Out: io.Discard})
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// blocked is a keyboard on which nobody types.
func blocked(t *testing.T) io.Reader {
	r, w := io.Pipe()
	t.Cleanup(func() { w.Close() })
	return r
}

func TestTheProgramDrawsUntilAKeyEndsIt(t *testing.T) {
	r, w := io.Pipe()
	out := &watcher{want: []byte("limit"), found: func() { _, _ = w.Write([]byte("q")) }}
	s := busy()
	if err := Run(t.Context(), &list{samples: []*meters.Sample{s}}, Options{In: r, Out: out, Replay: true,
		Env: []string{"TERM=xterm-256color"}}); err != nil {
		t.Fatal(err)
	}
	if !out.seen {
		t.Errorf("the screen has no verdict: %q", out.all.String())
	}
}

// watcher is a terminal that calls found once when it has received a text.
type watcher struct {
	all   bytes.Buffer
	want  []byte
	seen  bool
	found func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.all.Write(p)
	if !w.seen && bytes.Contains(w.all.Bytes(), w.want) {
		w.seen = true
		go w.found()
	}
	return len(p), nil
}

func TestTheContextEndsTheProgram(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("interrupted")
	out := &watcher{want: []byte("limit"), found: func() { cancel(why) }}
	if err := Run(ctx, &list{samples: hosts("a")}, Options{In: blocked(t), Out: out, Replay: true}); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

func TestARecordingIsReplayed(t *testing.T) {
	m := fakemachine.New(t)
	m.Write()
	c, err := meters.Open(meters.Options{Root: m.Root, Now: m.Clock})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var file bytes.Buffer
	src := Recorded(Live(c, time.Millisecond), func(l Line) error { return json.NewEncoder(&file).Encode(l) })
	var want []string
	for range 3 {
		m.Disks["vda"].Reads += 10
		m.Pass(time.Second, 0.1, 0, 0, 0)
		m.Write()
		s, err := src.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, strings.Join(View{}.Draw(s, Judged(s).Verdict), "\n"))
	}
	again := Replay(meters.ReadRecording(&file, "x"), 0)
	for i := range want {
		s, err := again.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(View{}.Draw(s, Judged(s).Verdict), "\n"); got != want[i] {
			t.Errorf("sample %d is drawn differently:\n%s\n%s", i, want[i], got)
		}
	}
	if _, err := again.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

func TestAWaitForASampleEndsWithTheContext(t *testing.T) {
	m := fakemachine.New(t)
	m.Write()
	c, err := meters.Open(meters.Options{Root: m.Root})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if _, err := Live(c, time.Hour).Next(ctx); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}
