// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/config"
)

// TestConfigRefusesWhatServerRefuses runs both commands with configurations that
// cannot work, and expects one answer. Neither may have made anything.
func TestConfigRefusesWhatServerRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"file", "cert.pem", "key.pem"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args string
		want string
		code int
	}{
		"data is a file":              {"--data DIR/file", "is a file; expected a directory", 2},
		"data is below a file":        {"--data DIR/file/sub", "is a file; expected a directory", 2},
		"data is the kernel's":        {"--data /proc/nebulaio", "belongs to the kernel", 2},
		"no such certificate":         {"--tls-cert DIR/none.pem --tls-key DIR/key.pem", "none.pem: no such file", 3},
		"the certificate is none":     {"--tls-cert DIR/cert.pem --tls-key DIR/key.pem", "read the certificate", 2},
		"well-known keys for all":     {"--address :9000", "well-known minioadmin", 2},
		"an address of others":        {"--console-address 192.0.2.7:9001", "listen on 192.0.2.7:9001", 2},
		"the door's directory":        {"--gpudirect-enabled --gpudirect-socket DIR/none/door.sock", "none: no such file", 3},
		"the door is a file":          {"--gpudirect-enabled --gpudirect-socket DIR/file", "is no socket", 2},
		"the door's name is too long": {"--gpudirect-enabled --data DIR/" + strings.Repeat("d", 120), "expected at most", 2},
		"a domain":                    {"--domains A_b", "is no domain", 2},
		"a size":                      {"--memory-limit 1MiB", "is out of range", 2},
	} {
		var answers []string
		for _, command := range []string{"server", "config"} {
			args := []string{command, "--data", filepath.Join(dir, "data"), "--address", "127.0.0.1:0", "--console-address",
				"127.0.0.1:0"}
			r := run(t, append(args, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...))
			r.want(t, c.code, c.want)
			answers = append(answers, r.stderr)
		}
		if answers[0] != answers[1] {
			t.Errorf("%s: server says %q, config says %q", name, answers[0], answers[1])
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("something was made: %v", left)
	}
	run(t, []string{"config", "--data", filepath.Join(dir, "data")}).want(t, 0, "data = ")
	if left, _ := os.ReadDir(dir); len(left) != 3 {
		t.Errorf("config made something: %v", left)
	}
}

func environ(vars ...string) func(*World) {
	return func(w *World) {
		w.Environ = func() []string { return vars }
		w.Env = func(name string) string {
			for _, v := range vars {
				if n, value, _ := strings.Cut(v, "="); n == name {
					return value
				}
			}
			return ""
		}
	}
}

func TestUnknownVariablesAreWarnedOf(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	const warning = "the environment variable NEBULAIO_ADRESS is unknown and has no effect (did you mean " +
		"NEBULAIO_ADDRESS?)"
	odd := environ("NEBULAIO_ADRESS=:1", "NEBULAIO_ROUTE=direct", "NEBULAIO_LIBRARY=/l", "NEBULAIO_SECRET_KEY=x",
		"PATH=/bin", "NEBULAIO_SERVICE_HOST=h")
	r := run(t, []string{"config", "--json", "--data", data}, odd)
	if r.code != 0 || r.stderr != "nebulaio: warning: "+warning+"\n" {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	if w := decode[configJSON](t, r).Warnings; !slices.Equal(w, []string{warning}) {
		t.Errorf("%q", w)
	}
	// The server writes it into its log, and goes on: here, to refuse its address.
	r = run(t, []string{"server", "--data", data, "--console-address", "192.0.2.7:1", "--log-format", "json"}, odd)
	if r.code != 2 || !strings.Contains(r.stderr, `"level":"WARN","msg":"`+warning+`"`) {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
	r = run(t, []string{"version"}, environ("NEBULAIO_ROUET=direct"))
	if r.code != 0 || !strings.Contains(r.stderr, "(did you mean NEBULAIO_ROUTE?)") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

// TestEveryVariableOfTheProjectIsKnown looks for variables in all sources, so
// that a new one is added to the list, and nobody is warned of it.
func TestEveryVariableOfTheProjectIsKnown(t *testing.T) {
	used := regexp.MustCompile(`(?:[Ee]nv\(|environ\.get\(|environ\[|environ\.setdefault\(|getenv\()["'](NEBULAIO_[A-Z0-9_]+)|\b(NEBULAIO_[A-Z0-9_]+)=\$?[({"]|\$\{?(NEBULAIO_[A-Z0-9_]+)`)
	var found []string
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") ||
			slices.Contains([]string{"build", "bin", "data", "docs"}, d.Name())) {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(path); d.IsDir() || ext != ".go" && ext != ".py" && ext != ".sh" && ext != ".service" &&
			d.Name() != "Makefile" || strings.HasSuffix(path, "variables_test.go") ||
			strings.HasSuffix(path, "validate_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(src)) {
			if !strings.Contains(line, "NEBULAIO_") {
				continue // the expression alone takes a minute over all sources
			}
			for _, m := range used.FindAllStringSubmatch(line, -1) {
				if name := m[1] + m[2] + m[3]; !slices.Contains(found, name+"=") {
					found = append(found, name+"=")
				}
			}
		}
		return nil
	})
	if err != nil || len(found) < 25 {
		t.Fatalf("%d variables found: %v", len(found), err)
	}
	for _, w := range config.Unknown(found, slices.Concat(otherVariables(), flagVariables(newRoot(&app{})))) {
		t.Error(w)
	}
}
