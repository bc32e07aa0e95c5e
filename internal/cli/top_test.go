// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bottleneck"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/meters"
	"github.com/nebulaio/nebulaio/test/effort"
)

// topLine is what a program that reads the output of top looks for.
type topLine struct {
	meters.Sample
	Verdict bottleneck.Verdict `json:"verdict"`
}

func topLines(t *testing.T, text string) (out []topLine) {
	t.Helper()
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		var l topLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%v in %q", err, s.Text())
		}
		out = append(out, l)
	}
	return out
}

// quick are the flags of a short look at this machine, without a server that may run on it.
func quick(args ...string) []string {
	return append([]string{"top", "--interval", "100ms", "--server", "off"}, args...)
}

func TestTopPrintsSamplesWithVerdicts(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{})
	g.Steer(fakegpu.Meters{Busy: 99, MemoryBusy: 40, Receive: 30e9, Send: 1e9}, fakegpu.Meters{Busy: 97, Receive: 1e9})
	withGPU := func(w *World) { w.NVMLLibrary, w.StdoutWidth = g.NVML, func() int { return 160 } }
	r := run(t, quick("--json", "--samples", "2"), withGPU)
	r.want(t, 0)
	lines := topLines(t, r.out)
	if len(lines) != 2 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, l := range lines {
		if l.Version != meters.Version || l.Seconds <= 0 || l.CPU.Count == 0 || l.Memory.Total == 0 || len(l.GPUs) != 2 ||
			l.Verdict.Bound != bottleneck.Compute || l.Verdict.Why == "" || len(l.Verdict.Figures) != 4 {
			t.Errorf("%+v", l)
		}
		if u := l.GPUs[0]; u.Busy != 0.99 || u.MemoryBusy != 0.4 || u.ReceiveRate < 27e9 || u.ReceiveRate > 33e9 ||
			u.SendRate < 0.9e9 ||
			u.SendRate > 1.1e9 || u.OfLink < 0.4 || u.OfLink > 0.6 {
			t.Errorf("%+v", u)
		}
	}
	r = run(t, quick("--once"), withGPU)
	r.want(t, 0, "nebulaio top", "limit  compute-bound", "0 Fake GPU", "99 %", "gen 1 x16", "process")
	if n := g.Sessions(); n != 0 {
		t.Errorf("%d sessions of NVML are left", n)
	}
	r = run(t, quick("--once", "--no-gpu"), withGPU)
	if r.want(t, 0, "limit "); strings.Contains(r.out, "gpu") && strings.Contains(r.out, "Fake GPU") {
		t.Errorf("a GPU is shown in spite of --no-gpu:\n%s", r.out)
	}
}

func TestTopRecordsAndReplays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new.jsonl")
	r := run(t, quick("--json", "--samples", "3", "--record", file))
	r.want(t, 0)
	kept, err := os.ReadFile(file)
	if err != nil || string(kept) != r.out {
		t.Errorf("the recording is not what was printed: %v", err)
	}
	if st, err := os.Stat(file); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v: others can read the command lines of processes", st.Mode(), err)
	}
	again := run(t, []string{"top", "--json", "--samples", "9", "--replay", file, "--speed", "0"})
	again.want(t, 0)
	if again.out != r.out {
		t.Errorf("the replay differs:\n%s\n%s", r.out, again.out)
	}
	run(t, quick("--once", "--record", file)).want(t, 2, "record to", "the file exists; expected a new file")
	if now, _ := os.ReadFile(file); !bytes.Equal(now, kept) {
		t.Error("a recording was overwritten")
	}
	run(t, []string{"top", "--once", "--replay", file, "--filter", "no such name"}).want(t, 0, "filter: no such name")
}

func TestTopRefusesWhatItCannotDo(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken.jsonl")
	if err := os.WriteFile(broken, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, c := range map[string]struct {
		code int
		want string
	}{
		"top":                          {2, "standard output: is no terminal; expected one, or --json or --once"},
		"top now":                      {2, `unknown argument "now"`},
		"top --once --interval 1ms":    {2, "--interval 1ms: is too short; expected at least 100ms"},
		"top --once --interval x":      {2, "expected a duration"},
		"top --once --sort size":       {2, "expected read, write, cpu, wait or name"},
		"top --once --speed 2":         {2, "only a replay has a speed"},
		"top --once --speed -1":        {2, "expected a number from 0 to 1000"},
		"top --once --samples -1":      {2, "a whole number of 0 or more"},
		"top --once --replay /no/such": {3, "replay /no/such: open /no/such: no such file"},
		"top --once --replay " + broken: {5,
			"line 1: the line has no version or no time; expected a sample"},
		"top --once --replay " + broken + " --record x": {2, "a replay cannot be recorded again"},
		"top --once --server 127.0.0.1:9001":            {2, "expected a URL such as http://127.0.0.1:9001"},
		"top --once --ca-file x":                        {2, "expected --server https://"},
		"top --once --ceilings " + broken:               {5, "measure them again"},
		"top --once --record /no/such/file":             {3, "record to /no/such/file"},
	} {
		run(t, strings.Fields(args)).want(t, c.code, c.want)
	}
	if _, err := os.Stat("x"); err == nil {
		t.Error("a file was left behind")
	}
}

// TestTopOnATerminal runs the program on a real terminal: it draws, obeys keys and puts the terminal back.
func TestTopOnATerminal(t *testing.T) {
	effort.SingleThreaded(t)
	file := filepath.Join(t.TempDir(), "new.jsonl")
	run(t, quick("--json", "--samples", "2", "--record", file)).want(t, 0)
	master, slave := openTerminal(t, 100)
	cmd := exec.Command(program, "top", "--replay", file, "--speed", "0")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.Env = append(os.Environ(), "TERM=xterm-256color", "XDG_CACHE_HOME="+t.TempDir(), "HOME="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var screen []byte
	// See waits for a text and types a key.
	see := func(text, key string) {
		t.Helper()
		buf := make([]byte, 4096)
		for !bytes.Contains(screen, []byte(text)) {
			n, err := master.Read(buf)
			screen = append(screen, buf[:n]...)
			if err != nil {
				t.Fatalf("%v before %q: %q", err, text, screen)
			}
		}
		if _, err := master.WriteString(key); err != nil {
			t.Fatal(err)
		}
	}
	// The library draws only the cells that change. The second line was empty, so that its first word comes in one piece.
	see("limit", "q")
	rest, err := io.ReadAll(master)
	if err != nil && !errors.Is(err, syscall.EIO) { // how a terminal ends
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %q", err, rest)
	}
	if screen = append(screen, rest...); !bytes.Contains(screen, []byte("\x1b[?1049l")) {
		t.Errorf("the terminal is not put back: %q", screen)
	}
}
