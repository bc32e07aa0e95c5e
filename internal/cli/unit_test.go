// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const packaging = "../../packaging"

// unitFile reads a file of systemd: the values of each key, in order, lines that begin with # left out.
func unitFile(t *testing.T, name string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(packaging, name))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			all[key] = append(all[key], value)
		}
	}
	return all
}

// TestTheUnitStartsAtTheFirstTry does what systemd does with the unit: an empty state directory, its environment, its
// command as another user, the socket of sd_notify, reload and stop.
func TestTheUnitStartsAtTheFirstTry(t *testing.T) {
	for _, dropIn := range []string{"", "gpudirect.conf"} {
		t.Run("with "+dropIn, func(t *testing.T) { startUnit(t, dropIn) })
	}
}

func startUnit(t *testing.T, dropIn string) {
	unit := unitFile(t, "nebulaio.service")
	for _, f := range unit["EnvironmentFile"] {
		if !strings.HasPrefix(f, "-") {
			t.Errorf("EnvironmentFile=%s has to exist before the first start", f)
		}
	}
	dir := t.TempDir()
	for _, path := range []string{filepath.Dir(dir), dir} { // another user passes through
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	state, run, etc, socket := filepath.Join(dir, "state"), filepath.Join(dir, "run"), filepath.Join(dir,
		"etc"), filepath.Join(dir, "notify")
	for path, mode := range map[string]os.FileMode{state: 0o700, run: 0o755, etc: 0o755} {
		if err := os.Mkdir(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, filepath.Join(packaging, "nebulaio.yaml"), filepath.Join(etc, "nebulaio.yaml"), 0o644)
	binary := filepath.Join(dir, "nebulaio")
	copyFile(t, program, binary, 0o755)
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	_ = manager.SetReadDeadline(time.Now().Add(patience))
	places := strings.NewReplacer("/usr/local/bin/nebulaio", binary, "/etc/nebulaio", etc, "/var/lib/nebulaio", state,
		"/run/nebulaio", run)

	words := strings.Fields(places.Replace(unit["ExecStart"][0]))
	cmd := exec.Command(words[0], words[1:]...)
	environment := unit["Environment"]
	if dropIn != "" {
		environment = append(environment, unitFile(t, dropIn)["Environment"]...)
	}
	for _, line := range environment {
		cmd.Env = append(cmd.Env, strings.Fields(places.Replace(line))...)
	}
	// The ports are those of the page; here any will do.
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+socket, "NEBULAIO_ADDRESS=127.0.0.1:0",
		"NEBULAIO_CONSOLE_ADDRESS=127.0.0.1:0")
	log := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if os.Getuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		for _, path := range []string{state, run} {
			if err := os.Chown(path, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(socket, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	told := func(want string) {
		t.Helper()
		b := make([]byte, 4096)
		n, err := manager.Read(b)
		if err != nil || !strings.HasPrefix(string(b[:n]), want) {
			t.Fatalf("the service manager was told %q, %v, expected %s…\n%s", b[:n], err, want, log)
		}
	}
	told("READY=1")
	if text, err := os.ReadFile(filepath.Join(state, "root.env")); err != nil ||
		strings.Contains(string(text), "minioadmin") {
		t.Errorf("%v: the keys are the well-known pair, or in no file", err)
	}
	until(t, "the line that says where the keys are", func() bool { return strings.Contains(log.String(), "root.env") })
	if dropIn != "" {
		if info, err := os.Stat(filepath.Join(run, "gpudirect.sock")); err != nil || info.Mode().Perm() != 0o666 {
			t.Errorf("the door's socket: %v, %v\n%s", info, err, log)
		}
	}
	if got := unit["ExecReload"]; len(got) != 1 || got[0] != `/bin/sh -c 'kill -HUP ${MAINPID}'` {
		t.Errorf("ExecReload=%v", got)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	told("RELOADING=1\nMONOTONIC_USEC=")
	told("READY=1")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	told("STOPPING=1")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, log)
	}
}

// TestSystemdReadsTheFiles lets systemd's own programs read what is packaged, where they are installed.
func TestSystemdReadsTheFiles(t *testing.T) {
	need := func(name string) string {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%s is not installed", name)
		}
		return path
	}
	analyze, sysusers, tmpfiles := need("systemd-analyze"), need("systemd-sysusers"), need("systemd-tmpfiles")
	root := t.TempDir()
	src, err := os.ReadFile(filepath.Join(packaging, "nebulaio.service"))
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(root, "nebulaio.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(src), "/usr/local/bin/nebulaio", program)),
		0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(unit+".d", 0o755); err != nil {
		t.Fatal(err)
	}
	copyFile(t, filepath.Join(packaging, "gpudirect.conf"), filepath.Join(unit+".d", "gpudirect.conf"), 0o644)
	copyFile(t, filepath.Join(packaging, "cluster/cluster.conf"), filepath.Join(unit+".d", "cluster.conf"), 0o644)
	if out, err := exec.Command(analyze, "verify", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	if os.Getuid() != 0 {
		t.Skip("to make users and directories below another root needs root")
	}
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{sysusers, "--root=" + root, filepath.Join(packaging, "nebulaio.sysusers")},
		{tmpfiles, "--root=" + root, "--create", filepath.Join(packaging, "nebulaio.tmpfiles")},
	} {
		args[len(args)-1], err = filepath.Abs(args[len(args)-1])
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", args[0], err, out)
		}
	}
	users, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	if err != nil || !strings.Contains(string(users), "nebulaio:x:") ||
		!strings.Contains(string(users), ":/var/lib/nebulaio:/usr/sbin/nologin") {
		t.Errorf("users: %s, %v", users, err)
	}
	for dir, mode := range map[string]os.FileMode{"etc/nebulaio": 0o750, "var/backups/nebulaio": 0o700} {
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
}

func copyFile(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, mode)
	if err == nil {
		_, err = io.Copy(dst, src)
	}
	if err == nil {
		err = dst.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
