// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestEveryRuleHasACheckAndEveryCheckARule(t *testing.T) {
	rules, err := parseRules(rulesJSON)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range checks() {
		if _, ok := rules.byID[c.id]; !ok || seen[c.id] {
			t.Errorf("the check %s has no rule, or is there twice", c.id)
		}
		seen[c.id] = true
	}
	for _, r := range rules.Rules {
		if !seen[r.ID] {
			t.Errorf("the rule %s has no check", r.ID)
		}
	}
	for _, id := range append(append(common(), p2pdmaOnly()...), nvfsOnly()...) {
		if !seen[id] {
			t.Errorf("the condition %s has no check", id)
		}
	}
}

// TestFindingsAreWhole runs every situation in every profile: no finding that
// asks for something is without its remedy, and no placeholder is left.
func TestFindingsAreWhole(t *testing.T) {
	for _, s := range situations {
		for _, p := range []Profile{Train, Infer, Checkpoint} {
			s.opt.Profile = p
			r := look(t, s.make(), s.opt)
			for i, f := range r.Findings {
				asks := f.Level == Fail || f.Level == Warn || f.Level == Unknown
				if f.Observed == "" || asks && f.FixNow == "" {
					t.Errorf("%s: %s %s has nothing observed or no fix", s.name, f.Level, f.ID)
				}
				if strings.Contains(strings.NewReplacer("ATTR{queue", "").Replace(f.FixNow+f.FixBoot+f.Expected), "{") {
					t.Errorf("%s: %s has a placeholder: %q %q", s.name, f.ID, f.FixNow, f.FixBoot)
				}
				if i > 0 && rank(r.Findings[i-1].Level) > rank(f.Level) {
					t.Errorf("%s: %s comes after a lower level", s.name, f.ID)
				}
			}
		}
	}
}

func TestTheProfileDecidesTheOrder(t *testing.T) {
	first := func(p Profile) string {
		m := bare().put(`
/proc/sys/vm/dirty_ratio = 20
/proc/sys/vm/dirty_background_ratio = 30
/proc/sys/vm/dirty_bytes = 0
/sys/class/block/nvme0n1/queue/scheduler = none [bfq]`)
		return look(t, m, Options{GPU: 0, Profile: p}).Findings[0].ID
	}
	if a, b := first(Train), first(Checkpoint); a != "blk.sched" || b != "vm.dirty" {
		t.Errorf("first for train %s, for checkpoint %s; want blk.sched and vm.dirty", a, b)
	}
}

func TestAMissingGPUFailsOnlyWhenAskedFor(t *testing.T) {
	if r := look(t, smallVM(), Options{GPU: 3}); !r.Failed() || r.Verdict.Cause == nil ||
		r.Verdict.Cause.ID != "gpu.present" {
		t.Errorf("failed %v, cause %v; want gpu.present to fail", r.Failed(), r.Verdict.Cause)
	}
}

// TestTheGPUIsTheOneThatCUDAMeans shows CUDA the second GPU alone.
func TestTheGPUIsTheOneThatCUDAMeans(t *testing.T) {
	m := numbered(t, "08").make()
	m.meta.Survey = &device.Survey{Devices: []device.Info{{ID: "cuda:0", PCI: "00000000:D8:00.0"}, {ID: "host"}}}
	for _, n := range []int{0, -1} {
		if r := look(t, m, Options{GPU: n}); r.GPU == nil || r.GPU.PCI != "0000:d8:00.0" || r.GPU.Index != 0 {
			t.Errorf("--gpu %d is %+v, want 0000:d8:00.0", n, r.GPU)
		}
	}
	if r := look(t, m, Options{GPU: 1}); r.GPU != nil || !r.Failed() {
		t.Errorf("--gpu 1 is %+v, want none", r.GPU)
	}
}

func TestMultipathHidesNoDisk(t *testing.T) {
	m := bare().put(`
/sys/module/nvme_core/parameters/multipath = Y
/sys/dev/block/259:1 -> /sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1
/sys/class/block/nvme0n1 -> /sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1
/sys/class/block/nvme0n1p1 -> /sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1
/sys/class/nvme-subsystem/nvme-subsys0/nvme0/state = live
/sys/class/nvme/nvme0 -> /sys/devices/pci0000:37/0000:37:01.0/0000:38:00.0/0000:39:01.0/0000:3a:00.0/nvme/nvme0`)
	r := look(t, m, Options{GPU: 0})
	if len(r.Path.Disks) != 1 || r.Path.Disks[0].PCI != "0000:3a:00.0" || r.Verdict.Cause == nil ||
		r.Verdict.Cause.ID != "p2p.multipath" {
		t.Errorf("disks %+v, cause %+v", r.Path.Disks, r.Verdict.Cause)
	}
}

// TestAnIdleModuleIsNotTakenForAMissingDriver: drivers are registered with
// nvidia-fs only while a program uses it.
func TestAnIdleModuleIsNotTakenForAMissingDriver(t *testing.T) {
	idle := func() *machine { return bare().drop("/etc/cufile.json").put(nvfs) }
	level := func(m *machine) Level {
		for _, f := range look(t, m, Options{GPU: 0}).Findings {
			if f.ID == "nvfs.modules" {
				return f.Level
			}
		}
		return ""
	}
	if l := level(idle()); l != Fail {
		t.Errorf("a driver without a hook: %s, want FAIL", l)
	}
	m := idle()
	m.meta.NVFSHooks = []string{"nvme_rdma_v1_register_nvfs_dma_ops", "nvme_v1_register_nvfs_dma_ops"}
	if l := level(m); l != Pass {
		t.Errorf("a driver with its hook: %s, want PASS", l)
	}
	m = idle()
	m.meta.P2PSymbol = "permission denied"
	if l := level(m); l != Unknown {
		t.Errorf("hidden symbols: %s, want UNKNOWN", l)
	}
}

func TestADefaultOfExt4IsNotTakenForOrdered(t *testing.T) {
	m := bare().put(`/proc/self/mountinfo = 30 22 259:1 / /data rw,noatime - ext4 /dev/nvme0n1p1 rw
/proc/fs/ext4/nvme0n1p1/options = rw|data=writeback`)
	if c := look(t, m, Options{GPU: 0}).Verdict.Cause; c == nil || c.ID != "fs.ext4.journal" || c.Level != Fail {
		t.Errorf("cause %+v, want fs.ext4.journal to fail", c)
	}
}

func TestFabricsAreNoP2PDMA(t *testing.T) {
	m := bare().put(`
/sys/dev/block/259:1 -> /sys/devices/virtual/nvme-fabrics/ctl/nvme0/nvme0n1
/sys/class/block/nvme0n1 -> /sys/devices/virtual/nvme-fabrics/ctl/nvme0/nvme0n1`)
	if c := look(t, m, Options{GPU: 0}).Verdict.Cause; c == nil || c.ID != "p2p.topology" && c.ID != "nvfs.loaded" {
		t.Errorf("cause %+v, want the fabric to stop P2PDMA", c)
	}
}

func TestACSAsNvidiaFSSeesIt(t *testing.T) {
	m := bare().put("/proc/driver/nvidia-fs/bridges = 0000:00:1c.0|0000:39:02.0")
	delete(m.Files, facts.PCIDir("0000:39:02.0")+"/config")
	r := look(t, m, Options{GPU: 0})
	if c := r.Verdict.Cause; c == nil || c.ID != "pcie.acs" || c.Subject != "0000:39:02.0" {
		t.Errorf("cause %+v, want ACS on 0000:39:02.0", c)
	}
}

// TestWhatIsDeniedIsUnknown proves that a file that may not be read is never
// taken for one that is not there.
func TestWhatIsDeniedIsUnknown(t *testing.T) {
	m := bare()
	delete(m.Files, "/proc/driver/nvidia/params")
	m.Denied["/proc/driver/nvidia/params"] = true
	r := look(t, m, Options{GPU: 0})
	if r.Verdict.Direct != "unproven" {
		t.Errorf("direct %q, want unproven", r.Verdict.Direct)
	}
	for _, f := range r.Findings {
		if f.ID == "p2p.regkeys" && (f.Level != Unknown || !strings.Contains(f.FixNow, "as root: grep RegistryDwords")) {
			t.Errorf("%s with the fix %q, want UNKNOWN with what to run", f.Level, f.FixNow)
		}
	}
}

// TestHostileNamesStayWords puts a command into a mount point of a capture.
func TestHostileNamesStayWords(t *testing.T) {
	m := bare().put(
		`/proc/self/mountinfo = 30 22 259:1 / /data/$(reboot)\012reboot\047;x\033[2J rw - ext4 /dev/x;reboot rw`)
	m.meta.Target.Path = "/data/$(reboot)\nreboot';x\x1b[2J"
	r := look(t, m, Options{GPU: 0})
	var text, script bytes.Buffer
	WriteText(&text, r, true)
	WriteFixScript(&script, r)
	for line := range strings.Lines(script.String()) {
		if strings.HasPrefix(line, "reboot") || strings.Contains(line, "\x1b") {
			t.Errorf("the script runs %q", line)
		}
	}
	if !strings.Contains(script.String(), `'/dev/x;reboot'`) || strings.Contains(text.String(), "\x1b") {
		t.Errorf("not quoted or not cleaned:\n%s", script.String())
	}
}

func TestHostileTreesEnd(t *testing.T) {
	m := bare().put(`
/sys/dev/block/259:1 -> /sys/class/block/md0
/sys/class/block/md0/slaves/md1/x = 1
/sys/class/block/md1/slaves/md0/x = 1
/sys/a -> /sys/b
/sys/b -> /sys/a
/sys/bus/pci/devices/0000:3b:00.0 -> /sys/bus/pci/devices/0000:3b:00.0/again`)
	m.Files["/proc/self/cgroup"] = []byte("0::" + strings.Repeat("/..", 1000))
	loop := make([]byte, 4096)
	loop[0x34], loop[0x41] = 0x40, 0x40
	m.Files[facts.PCIDir("0000:3a:00.0")+"/config"] = loop
	m.Files["/etc/cufile.json"] = []byte(strings.Repeat("[", 1<<16))
	look(t, m, Options{GPU: 0})
}

// TestTheJSONKeepsItsNames: programs and baselines read them.
func TestTheJSONKeepsItsNames(t *testing.T) {
	b, err := json.Marshal(look(t, bare(), Options{GPU: 0}))
	if err != nil {
		t.Fatal(err)
	}
	var top map[string]json.RawMessage
	var findings []map[string]any
	if err := json.Unmarshal(b, &top); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(top["findings"], &findings); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"version", "rules_version", "profile", "machine", "path", "gpu", "verdict"} {
		if top[name] == nil {
			t.Errorf("no %q in the result", name)
		}
	}
	for _, name := range []string{"id", "title", "subject", "level", "observed", "expected", "why", "reference", "cost"} {
		if findings[0][name] == nil {
			t.Errorf("no %q in a finding", name)
		}
	}
}

func TestCompare(t *testing.T) {
	before, now := look(t, bare(), Options{GPU: 0}), look(t, numbered(t, "09").make(), Options{GPU: 0})
	b, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if before, err = ParseResult("x", b); err != nil {
		t.Fatal(err)
	}
	if d := Compare(before, now); len(d.Worse) != 1 || d.Worse[0].ID != "pcie.link.nvme" ||
		len(d.Better)+len(d.New)+len(d.Gone) != 0 {
		t.Errorf("got %+v, want pcie.link.nvme to be worse", d)
	}
	if d := Compare(now, before); len(d.Better) != 1 || d.Better[0].From != Fail || d.Better[0].To != Pass {
		t.Errorf("got %+v, want pcie.link.nvme to be better", d)
	}
	if _, err := ParseResult("x", []byte("{}")); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("an empty object: %v, want corrupt", err)
	}
}

// TestACaptureGivesTheSameFindings captures this machine both ways and judges
// it again from what was kept.
func TestACaptureGivesTheSameFindings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "model")
	if err := os.WriteFile(file, make([]byte, 8192), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := facts.Look(file, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out.tar", "out"} {
		rec := facts.NewRecorder(steady{facts.Live()})
		want, err := Diagnose(rec, m, Options{GPU: -1})
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), name)
		if _, err := Capture(out, steady{facts.Live()}, m); err != nil {
			t.Fatal(err)
		}
		tree, meta, err := facts.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Diagnose(tree, meta, Options{GPU: -1})
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			a, _ := json.MarshalIndent(got, "", " ")
			b, _ := json.MarshalIndent(want, "", " ")
			t.Errorf("%s: the capture says\n%s\nthe machine\n%s", name, a, b)
		}
		if _, err := Capture(out, steady{facts.Live()}, m); err == nil {
			t.Errorf("%s: a capture was written over", name)
		}
	}
}

// TestACaptureKnowsEveryGPU captures every situation and asks about its GPU.
func TestACaptureKnowsEveryGPU(t *testing.T) {
	for _, s := range situations {
		m, out := s.make(), filepath.Join(t.TempDir(), "out.tar")
		want := look(t, m, s.opt)
		if _, err := Capture(out, m.Record, m.meta); err != nil {
			t.Fatal(err)
		}
		tree, meta, err := facts.Load(out)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Diagnose(tree, meta, s.opt)
		if err != nil {
			t.Fatal(err)
		}
		if d := Compare(want, got); len(d.Better)+len(d.Worse)+len(d.New)+len(d.Gone) > 0 ||
			!reflect.DeepEqual(want.Verdict, got.Verdict) {
			t.Errorf("%s: %+v, verdict %+v; want %+v", s.name, d, got.Verdict, want.Verdict)
		}
	}
}

// steady is the live machine without what changes between two looks.
type steady struct{ facts.Tree }

func (s steady) ReadFile(name string) ([]byte, error) {
	if strings.HasPrefix(name, "/proc/pressure/") || name == "/proc/sys/fs/aio-nr" ||
		strings.Contains(name, "/statistics/") || name == "/proc/meminfo" {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return s.Tree.ReadFile(name)
}

func TestBadCaptures(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := facts.Load(dir); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("no meta.json: %v, want corrupt", err)
	}
	if _, _, err := facts.Load(filepath.Join(dir, "none")); errs.KindOf(err) != errs.NotFound {
		t.Errorf("nothing there: %v, want not found", err)
	}
	file := filepath.Join(dir, "x.tar")
	if err := os.WriteFile(file, []byte(strings.Repeat("x", 2048)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := facts.Load(file); errs.KindOf(err) != errs.Corrupt {
		t.Errorf("no tar: %v, want corrupt", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "meta.json"), []byte(`{"version":99}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := facts.Load(dir); errs.KindOf(err) != errs.Unsupported {
		t.Errorf("a newer version: %v, want unsupported", err)
	}
}

// TestLinksOfACaptureStayInside puts a link to this machine's files into one.
func TestLinksOfACaptureStayInside(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "meta.json"), []byte(`{"version":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/status", filepath.Join(dir, "secret")); err != nil {
		t.Fatal(err)
	}
	tree, _, err := facts.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := tree.ReadFile("/secret"); err == nil {
		t.Errorf("read %d bytes of this machine through a capture", len(b))
	}
}
