// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

func counted(r device.RouteOps) *facts.Proof {
	c := device.DirectCounters{Known: true, Reads: r}
	return &facts.Proof{Done: true, Reads: 16, ReadSize: 1 << 20, Route: c.Route(), Counters: c, Version: "1.15"}
}

func TestTheProofAgainstTheVerdict(t *testing.T) {
	compat, p2p, nvfs, mixed := device.RouteOps{Total: 16, Posix: 16}, device.RouteOps{Total: 16,
		P2P: 16}, device.RouteOps{Total: 16, NVFS: 16}, device.RouteOps{Total: 16, NVFS: 15, Posix: 1}
	unread := func() *machine {
		m := bare().drop("/proc/driver/nvidia/params")
		return m
	}
	with := func(p *facts.Proof, f func(*facts.Proof)) *facts.Proof { f(p); return p }
	for _, c := range []struct {
		name    string
		machine *machine
		proof   *facts.Proof
		level   Level
		direct  string // after the proof
		says    []string
	}{
		{"p2p as the verdict", bare(), counted(p2p), Pass, "yes", []string{"direct path for"}},
		{"nvfs where the verdict meant p2pdma", bare(), counted(nvfs), Pass, "yes",
			[]string{"over nvidia-fs, as cuFile's own counters show"}},
		{"compat against the verdict", bare(), with(counted(compat),
			func(p *facts.Proof) { p.Log = "cufio-udev:65 property\nnot found" }), Fail, "no",
			[]string{"no direct path", "compat (posix 16, p2p 0, nvfs 0)", "first     proof.path cuFile",
				"fix:  fix what cuFile's log names: cufio-udev:65 property not found"}},
		{"compat as the verdict", gpuVM(), counted(compat), Info, "no",
			[]string{"proof     cuFile read 16 x 1.00 MiB: compat (posix 16, p2p 0, nvfs 0)\n", "INFO    proof.path"}},
		{"compat, not all could be read", unread(), counted(compat), Unknown, "unproven",
			[]string{"UNKNOWN proof.path", "logging.level"}},
		{"p2p, not all could be read", unread(), counted(p2p), Pass, "yes",
			[]string{"over p2pdma, as cuFile's own counters show"}},
		{"p2p against the verdict", gpuVM(), counted(p2p), Pass, "yes", []string{"as cuFile's own counters show"}},
		{"mixed", bare(), counted(mixed), Warn, "yes", []string{"WARN    proof.path", "mixed (posix 1, p2p 0, nvfs 15)"}},
		{"no counters", bare(), &facts.Proof{Done: true, Reads: 16, ReadSize: 4096, Route: "unknown", Error: "too old",
			Fix: "install libcufile 1.15"}, Unknown, "yes",
			[]string{"cuFile read 16 x 4.00 KiB: unknown (too old)", "install libcufile 1.15"}},
		{"failed", bare(), &facts.Proof{Error: "refused (5027)", Log: "udev property not found: ID_FS_USAGE",
			Fix: "# make /run/udev\nvisible"}, Unknown, "unproven",
			[]string{"failed: refused (5027); its log says: udev property not found: ID_FS_USAGE",
				"fix:  make /run/udev visible"}},
		{"failed where the verdict said no", gpuVM(), &facts.Proof{Error: "refused"}, Unknown, "no",
			[]string{"UNKNOWN proof.path"}},
		{"skipped", bare(), &facts.Proof{Skipped: "no path was given"}, Skip, "yes",
			[]string{"proof     not made: no path was given"}},
		{"of another GPU", bare(), with(counted(compat), func(p *facts.Proof) { p.GPU = 3 }), Skip, "yes", nil},
		{"without a GPU", smallVM(), &facts.Proof{Skipped: "no GPU that CUDA can use"}, Skip, "none", nil},
		{"a route that nobody knows", bare(), &facts.Proof{Done: true, Route: "\x1b[31mteleport"}, Unknown, "yes",
			[]string{"?[31mteleport"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.machine.meta.Proof = c.proof
			r := look(t, c.machine, Options{GPU: -1})
			var found []Finding
			for i, f := range r.Findings {
				if f.ID == "proof.path" {
					found = append(found, f)
				}
				if i > 0 && rank(r.Findings[i-1].Level) > rank(f.Level) {
					t.Errorf("%s comes after a lower level", f.ID)
				}
			}
			if len(found) != 1 || found[0].Level != c.level || r.Verdict.Direct != c.direct || r.Proof != c.proof {
				t.Errorf("finding %+v, direct %s; want %s and %s", found, r.Verdict.Direct, c.level, c.direct)
			}
			if asks := c.level == Fail || c.level == Warn || c.level == Unknown; len(found) == 1 &&
				asks != strings.HasPrefix(found[0].FixNow, "# ") || strings.Contains(found[0].FixNow, "\n") {
				t.Errorf("the fix is %q", found[0].FixNow)
			}
			var b bytes.Buffer
			WriteText(&b, r, false)
			if silent := r.GPU == nil && c.proof.Skipped != ""; silent == strings.Contains(b.String(), "\nproof ") {
				t.Errorf("the line of the proof in:\n%s", b.String())
			}
			for _, s := range c.says {
				if !strings.Contains(b.String(), s) {
					t.Errorf("no %q in:\n%s", s, b.String())
				}
			}
		})
	}
}

func TestACaptureKeepsTheProof(t *testing.T) {
	m := gpuVM()
	m.meta.Proof = counted(device.RouteOps{Total: 16, Posix: 16})
	out := filepath.Join(t.TempDir(), "c.tar")
	if _, err := Capture(out, m.Record, m.meta); err != nil {
		t.Fatal(err)
	}
	_, meta, err := facts.Load(out)
	if err != nil || meta.Proof == nil || *meta.Proof != *m.meta.Proof {
		t.Errorf("%v: %+v", err, meta.Proof)
	}
}

// here is a facts.Meta whose target is a file of n bytes, with a GPU.
func here(t *testing.T, n int) facts.Meta {
	t.Helper()
	path := filepath.Join(t.TempDir(), "it's.bin")
	if err := os.WriteFile(path, make([]byte, n), 0o600); err != nil {
		t.Fatal(err)
	}
	return facts.Meta{Target: &facts.Target{Path: path},
		Survey: &device.Survey{Devices: []device.Info{{ID: "cuda:0"}, {ID: "host"}}}}
}

// shellScript is a process that does what text says; $5 is the path.
func shellScript(text string) func(context.Context, ...string) *exec.Cmd {
	return func(ctx context.Context, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", text, "sh"}, args...)...)
		cmd.Env = append(os.Environ(), "CUFILE_LOGFILE_PATH=/elsewhere/cufile.log",
			"CUFILE_ENV_PATH_JSON=/elsewhere/cufile.json")
		return cmd
	}
}

func TestProveAsksAProcess(t *testing.T) {
	m := here(t, 4096)
	tree := facts.NewRecord()
	tree.Files["/etc/cufile.json"] = []byte(`{ // mine
		"logging": {"level": "INFO", "dir": "/var/log"}, "properties": {"max_device_pinned_mem_size_kb": 33554432, "allow_compat_mode": false}}`)
	keep := filepath.Join(t.TempDir(), "seen.json")
	p := Prove(t.Context(), tree, m, ProveOptions{GPU: -1, Command: shellScript(`
		test "$*" = "doctor prove --gpu 0 ` + m.Target.Path + `" || { echo "arguments $*" >&2; exit 1; }
		test -z "$CUFILE_LOGFILE_PATH" || exit 1
		cp "$CUFILE_ENV_PATH_JSON" ` + keep + ` || exit 1
		pwd > ` + keep + `.dir
		echo " 01-01 [pid=1] ERROR  cufio-udev:65 udev property not found: ID_FS_USAGE" > cufile_1.log
		echo "a library talks"
		echo '{"done":true,"gpu":7,"reads":16,"read_size":4096,"route":"compat","counters":{"known":true,"reads":{"total":16,"posix":16}},"cufile_version":"1.15"}'
		echo "{and says good bye"
		kill -SEGV $$`)})
	if proofText(p) != "cuFile read 16 x 4.00 KiB: compat (posix 16, p2p 0, nvfs 0); its log says: cufio-udev:65 udev "+
		"property not found: ID_FS_USAGE" || p.GPU != 0 || p.Error != "" {
		t.Errorf("%+v: %s", p, proofText(p))
	}
	b, err := os.ReadFile(keep)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.ReadFile(keep + ".dir")
	if err != nil {
		t.Fatal(err)
	}
	private := strings.TrimSpace(string(dir))
	var got, want map[string]any
	text := `{"logging": {"level": "INFO", "dir": "` + private +
		`"}, "properties": {"max_device_pinned_mem_size_kb": 33554432, "allow_compat_mode": false}, "profile": {"cufile_stats": 0}}`
	if err := json.Unmarshal(b, &got); err != nil || json.Unmarshal([]byte(text), &want) != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if !bytes.Equal(a, w) {
		t.Errorf("the configuration is\n%s, want\n%s", a, w)
	}
	if _, err := os.Stat(private); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", private, err)
	}
}

// TestStatisticsAreOffWithoutADirectRoute: libcufile may crash after it counted
// where it can only take compatibility mode.
func TestStatisticsAreOffWithoutADirectRoute(t *testing.T) {
	for name, c := range map[string]struct {
		config, nvfs string
		env          map[string]string
		want         float64
	}{
		"nothing":                {want: 0},
		"the user turns them on": {config: `{"profile": {"cufile_stats": 3}}`, want: 0},
		"P2PDMA":                 {config: `{"properties": {"use_pci_p2pdma": true}}`, want: 3},
		"P2PDMA of NVMe":         {config: `{"block": {"nvme": {"use_pci_p2pdma": true}}}`, want: 3},
		"P2PDMA by variable":     {env: map[string]string{"CUFILE_USE_PCIP2PDMA": "true"}, want: 3},
		"no P2PDMA": {config: `{"properties": {"use_pci_p2pdma": true}}`,
			env: map[string]string{"CUFILE_USE_PCIP2PDMA": "false"}, want: 0},
		"nvidia-fs": {nvfs: "version: 2.28.2\n", want: 3},
	} {
		tree := facts.NewRecord()
		if c.config != "" {
			tree.Files["/etc/cufile.json"] = []byte(c.config)
		}
		if c.nvfs != "" {
			tree.Files["/proc/driver/nvidia-fs/version"] = []byte(c.nvfs)
		}
		m := here(t, 4096)
		m.CuFileEnv = c.env
		file, err := CuFileConfig(tree, m, t.TempDir())
		if err != nil {
			t.Fatal(name, err)
		}
		b, err := os.ReadFile(file)
		var v struct{ Profile map[string]float64 }
		if err != nil || json.Unmarshal(b, &v) != nil || v.Profile["cufile_stats"] != c.want {
			t.Errorf("%s: %s, %v, want %v", name, b, err, c.want)
		}
	}
}

func TestProveWhenTheProcessFails(t *testing.T) {
	for _, c := range []struct {
		name, script string
		limit        time.Duration
		says         []string
	}{
		{"a crash", "kill -SEGV $$", 0, []string{"ended: signal: segmentation fault"}},
		{"its words", "echo 'cannot start' >&2; echo more >&2; exit 3", 0, []string{"exit status 3: cannot start"}},
		{"no answer", "echo no JSON", 0, []string{"gave no answer"}},
		{"too long", "exec sleep 100", 50 * time.Millisecond, []string{"took longer than 50ms and was ended"}},
		{"endless words", "head -c 3000000 /dev/zero", 0, []string{"gave no answer"}},
	} {
		m := here(t, 4096)
		p := Prove(t.Context(), facts.NewRecord(), m, ProveOptions{Command: shellScript(c.script), Limit: c.limit})
		for _, s := range c.says {
			if p.Done || !strings.Contains(p.Error, s) || !strings.Contains(p.Fix, "doctor prove --gpu 0 ") {
				t.Errorf("%s: %+v", c.name, p)
			}
		}
	}
	gone := func(ctx context.Context, _ ...string) *exec.Cmd { return exec.CommandContext(ctx, "/nowhere/nebulaio") }
	if p := Prove(t.Context(), facts.NewRecord(), here(t, 4096), ProveOptions{Command: gone}); !strings.Contains(p.Error,
		"/nowhere/nebulaio") {
		t.Errorf("%+v", p)
	}
}

func TestProveSaysWhyItWasNotTried(t *testing.T) {
	never := shellScript("echo started >&2")
	file := here(t, 4096)
	noGPU := here(t, 4096)
	noGPU.Survey = &device.Survey{NoGPU: "libcuda is missing", Fix: "install it"}
	pipe := here(t, 1)
	pipe.Target = &facts.Target{Path: os.DevNull}
	vanished := here(t, 1)
	vanished.Target.Path += ".gone"
	broken := facts.NewRecord()
	broken.Files["/etc/cufile.json"] = []byte(`{"logging": `)
	for _, c := range []struct {
		name string
		m    facts.Meta
		tree facts.Tree
		o    ProveOptions
		want string
	}{
		{"no path", facts.Meta{Survey: file.Survey}, facts.NewRecord(), ProveOptions{Command: never}, "no path was given"},
		{"no survey", facts.Meta{Target: file.Target}, facts.NewRecord(), ProveOptions{Command: never},
			"GPUs were not queried"},
		{"no GPU", noGPU, facts.NewRecord(), ProveOptions{Command: never}, "libcuda is missing"},
		{"another GPU", file, facts.NewRecord(), ProveOptions{Command: never, GPU: 4}, "CUDA shows no cuda:4"},
		{"no program", file, facts.NewRecord(), ProveOptions{}, "no program"},
		{"a small file", here(t, 4095), facts.NewRecord(), ProveOptions{Command: never}, "4095 bytes; a read needs 4096"},
		{"a device", pipe, facts.NewRecord(), ProveOptions{Command: never}, "neither a regular file nor a directory"},
		{"gone", vanished, facts.NewRecord(), ProveOptions{Command: never}, "no such file"},
		{"a broken configuration", file, broken, ProveOptions{Command: never}, "/etc/cufile.json cannot be used"},
	} {
		if p := Prove(t.Context(), c.tree, c.m, c.o); !strings.Contains(p.Skipped, c.want) || p.Error != "" || p.Done {
			t.Errorf("%s: %+v, want %q", c.name, p, c.want)
		}
	}
}

func TestADirectoryGetsAFileForTheProof(t *testing.T) {
	m := here(t, 1)
	dir := t.TempDir()
	m.Target = &facts.Target{Path: dir, Dir: true}
	p := Prove(t.Context(), facts.NewRecord(), m,
		ProveOptions{Command: shellScript(`test "$(stat -c %s "$5")" = 16777216 && test "$(stat -c %b "$5")" -gt 30000 && echo '{"done":true,"route":"p2p"}'; dirname "$5" >&2`)})
	left, err := os.ReadDir(dir)
	if !p.Done || p.Route != "p2p" || err != nil || len(left) != 0 {
		t.Errorf("%+v, left %v, %v", p, left, err)
	}
	if os.Geteuid() == 0 {
		dir = "/proc" // root writes anywhere else
	} else if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	m.Target.Path = dir
	if p := Prove(t.Context(), facts.NewRecord(), m, ProveOptions{Command: shellScript("echo started")}); p.Skipped == "" {
		t.Errorf("in a directory that cannot be written: %+v", p)
	}
}
