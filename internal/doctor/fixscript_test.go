// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

func script(t *testing.T, m *machine, o Options) string {
	t.Helper()
	var b bytes.Buffer
	WriteFixScript(&b, look(t, m, o))
	return b.String()
}

// TestTheScriptInstallsInOrder: what conflicts goes, the fabric's drivers come,
// then GPUDirect Storage, then its configuration, the restart and the proof.
func TestTheScriptInstallsInOrder(t *testing.T) {
	m := bare().drop("/etc/cufile.json").put(nvfs + `
/etc/cufile.json = {"logging": {"level": "TRACE"}}
/proc/driver/nvidia-fs/version = version: 2.17.5
/proc/driver/nvidia/params = RegistryDwords: ""
/sys/module/nvme_core/parameters/multipath = Y
/sys/class/block/nvme0n1/queue/scheduler = none [bfq]`)
	m.meta.Kernel, m.meta.NoFile = "6.11.0", 1024
	text := script(t, m, Options{GPU: 0})
	at := 0
	for _, s := range []string{"exit 1\nset -eu\n", "==== packages that conflict", "apt-get purge",
		"==== driver and fabric", "# FAIL nvfs.modules", "DOCA",
		"==== GPUDirect Storage", "\ncommand -v ofed_info >/dev/null || {", "\napt-get install -y nvidia-gds\n",
		"# WARN nvfs.version", "==== cufile.json", "# WARN cufile.sizes", "==== the path", "# WARN blk.sched",
		"==== the machine", "# WARN lim.nofile", "# for the next boot:", "==== restart", "# reboot", "==== verify",
		"\nnebulaio doctor /data/model.safetensors --gpu 0\n"} {
		i := strings.Index(text[at:], s)
		if i < 0 {
			t.Fatalf("no %q after byte %d of\n%s", s, at, text)
		}
		at += i + len(s)
	}
	for _, s := range []string{"gds-tools-*", "libcufile-*", " nvidia-fs ", "nvidia-fs-dkms", "nvidia-gds*"} {
		if !strings.Contains(text, s) {
			t.Errorf("%q is not purged", s)
		}
	}
}

// TestTheP2PScriptWritesModuleOptions: they come before the restart.
func TestTheP2PScriptWritesModuleOptions(t *testing.T) {
	text := script(t, bare().put(`/proc/driver/nvidia/params = RegistryDwords: ""`), Options{GPU: 0})
	options, restart := strings.Index(text, "> /etc/modprobe.d/nvidia-p2pdma.conf"), strings.Index(text, "# reboot")
	if options < 0 || restart < options || strings.Contains(text, "purge") {
		t.Errorf("options at %d, restart at %d, or packages that are not wanted:\n%s", options, restart, text)
	}
}

// TestNothingDestructiveRuns reads every line that a shell would run.
func TestNothingDestructiveRuns(t *testing.T) {
	for _, s := range situations {
		for line := range strings.Lines(script(t, s.make(), s.opt)) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " # ")
			if strings.HasPrefix(line, "#") {
				continue
			}
			for _, word := range []string{"mount", "purge", "mkfs", "format", "reboot", "modprobe -r", "rm ", "tune2fs",
				"--create"} {
				if strings.Contains(line, word) {
					t.Errorf("%s: the script runs %q", s.name, line)
				}
			}
		}
	}
	for fix, want := range map[string]bool{"umount /x && mount /x": true,
		"modprobe -r nvidia-fs && modprobe nvidia-fs": true, "modprobe nvidia-fs": false,
		"mkfs.xfs -f /dev/x": true, "systemctl start udev": false, "echo none > /sys/block/x/queue/scheduler": false,
		"apt-get purge -y x": true, "# words": false} {
		if strings.HasPrefix(held(fix), "# review first: ") != want {
			t.Errorf("%q is held: %v", fix, !want)
		}
	}
}

// TestScriptsParse asks the shells that are there.
func TestScriptsParse(t *testing.T) {
	asked := 0
	for _, tool := range [][]string{{"sh", "-n"}, {"bash", "-n"}, {"shellcheck", "-s", "sh", "-e", "SC2317", "-"}} {
		if _, err := exec.LookPath(tool[0]); err != nil {
			continue
		}
		for _, s := range situations {
			cmd := exec.Command(tool[0], tool[1:]...)
			cmd.Stdin = strings.NewReader(script(t, s.make(), s.opt))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s", s.name, tool[0], err, out)
			}
			asked++
		}
	}
	if asked == 0 {
		t.Skip("no shell here")
	}
}

func TestEveryBlockNamesItsRule(t *testing.T) {
	for _, s := range situations {
		r := look(t, s.make(), s.opt)
		var b bytes.Buffer
		WriteFixScript(&b, r)
		for _, f := range r.Findings {
			if asks := f.Level == Fail || f.Level == Warn; asks &&
				!strings.Contains(b.String(), "# "+string(f.Level)+" "+f.ID+": ") {
				t.Errorf("%s: %s is not in the script", s.name, f.ID)
			}
		}
	}
}
