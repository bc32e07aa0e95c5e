// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/node"
)

// TestClusterKey makes keys on standard output and in a file, and refuses to replace a key.
func TestClusterKey(t *testing.T) {
	r := run(t, []string{"cluster", "key"})
	r.want(t, 0)
	if _, err := cluster.ParseKey(r.out); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "cluster.key")
	r = run(t, []string{"cluster", "key", "--out", file})
	r.want(t, 0, "key       "+file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(r.out, strings.TrimSpace(string(text))) {
		t.Error("the key was printed")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if _, err := cluster.ReadKey(file); err != nil {
		t.Error(err)
	}
	run(t, []string{"cluster", "key", "--out", file}).want(t, 6, "file exists", "use the key that is there")
	if again, err := os.ReadFile(file); err != nil || string(again) != string(text) {
		t.Error("the key was replaced")
	}
}

// TestClusterStatus looks at a server that does not run, at one in no cluster, and at two servers of one cluster.
func TestClusterStatus(t *testing.T) {
	dir := t.TempDir()
	one, two, file := filepath.Join(dir, "one"), filepath.Join(dir, "two"), filepath.Join(dir, "key")
	run(t, []string{"cluster", "status", "--data", one}).want(t, 0, "none: no server runs on "+one, "fix: start one")

	p := startServer(t, one, nil)
	run(t, []string{"cluster", "status", "--data", one}).want(t, 0, "none: cluster.address is not set")
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}

	run(t, []string{"cluster", "key", "--out", file}).want(t, 0)
	secret, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	env := func(name string, more ...string) []string {
		return append([]string{"NEBULAIO_CLUSTER_ADDRESS=127.0.0.1:0", "NEBULAIO_CLUSTER_GOSSIP_ADDRESS=127.0.0.1:0",
			"NEBULAIO_CLUSTER_KEY_FILE=" + file, "NEBULAIO_CLUSTER_NAME=" + name, "NEBULAIO_LOG_LEVEL=debug"}, more...)
	}
	p = startServer(t, one, env("one"))
	st := decode[clusterJSON](t, run(t, []string{"cluster", "status", "--data", one, "--json"}))
	if !st.Running || !st.Enabled || len(st.Status.Members) != 1 || !st.Status.Members[0].Self {
		t.Fatalf("%+v", st)
	}
	q := startServer(t, two, env("two", "NEBULAIO_CLUSTER_SEEDS="+st.Status.Members[0].Gossip,
		"NEBULAIO_CLUSTER_WEIGHT=7"))
	var both node.Cluster
	for both.Status == nil || len(both.Status.Members) != 2 {
		both = decode[clusterJSON](t, run(t, []string{"cluster", "status", "--data", one, "--json"})).Cluster
	}
	if m := both.Status.Members[1]; m.Name != "two" || m.Weight != 7 || m.State != cluster.StateAlive {
		t.Errorf("%+v", m)
	}
	run(t, []string{"cluster", "status", "--data", two}).want(t, 0, "node      two", "served    0 requests", "one ",
		" self ", " alive ", "strangers")
	if code := q.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, q.log)
	}
	for both.Status.Members[1].State != cluster.StateLost {
		both = decode[clusterJSON](t, run(t, []string{"cluster", "status", "--data", one, "--json"})).Cluster
	}
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, p.log)
	}
	for _, log := range []string{p.log.String(), q.log.String()} {
		if strings.Contains(log, strings.TrimSpace(string(secret))) {
			t.Error("the log has the cluster key")
		}
		if !strings.Contains(log, "joined the cluster") {
			t.Errorf("no line about the cluster: %s", log)
		}
	}
}

// TestClusterKeyThatOthersRead ends the start with what to do.
func TestClusterKeyThatOthersRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(cluster.NewKey()), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"config", "--cluster-address", "127.0.0.1:0", "--cluster-key-file", file, "--data", t.TempDir()}).
		want(t, 4, "every user of this machine may use the file (mode 0644)", "chmod 600 "+file)
}
