// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/nebulaio/nebulaio/internal/config"
)

// clusterFiles is the directory of the examples of clusters.
const clusterFiles = "../../packaging/cluster"

// documents reads the YAML documents of an example.
func documents(t *testing.T, name string) []map[string]any {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(clusterFiles, name))
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for dec := yaml.NewDecoder(bytes.NewReader(src)); ; {
		var d map[string]any
		if err := dec.Decode(&d); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, d)
	}
}

// at returns the value at a path of names and indexes.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			s, _ := v.([]any)
			if p >= len(s) {
				t.Fatalf("nothing at %v", path)
			}
			v = s[p]
		}
		if v == nil {
			t.Fatalf("nothing at %v", path)
		}
	}
	return v
}

// accepted loads settings of an example, with the variables of its environment.
func accepted(t *testing.T, settings string, env map[string]string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nebulaio.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	for name := range env { // a mistyped variable would be ignored
		if strings.HasPrefix(name, "NEBULAIO_") &&
			!slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return k.Env() == name }) {
			t.Errorf("there is no variable %s", name)
		}
	}
	c, err := config.Load(config.Inputs{File: file, Env: func(name string) string { return env[name] }})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Cluster.Enabled() || len(c.Cluster.Seeds) == 0 || len(c.Upstreams()) != 1 {
		t.Errorf("the example has no cluster or no upstream bucket: %+v", c.Cluster)
	}
	return c
}

// TestClusterUnderSystemd loads the settings of a node with the variables of its drop-in.
func TestClusterUnderSystemd(t *testing.T) {
	settings, err := os.ReadFile(filepath.Join(clusterFiles, "nebulaio.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dropIn, err := os.ReadFile(filepath.Join(clusterFiles, "cluster.conf"))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for line := range strings.Lines(string(dropIn)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "Environment="); ok {
			for _, word := range strings.Fields(text) {
				name, value, _ := strings.Cut(word, "=")
				env[name] = value
			}
		}
	}
	c := accepted(t, string(settings), env)
	credential, _, _ := strings.Cut(between(string(dropIn), "LoadCredential=", "\n"), ":")
	if c.Cluster.KeyFile != "%d/"+credential {
		t.Errorf("the key is at %s, and the credential is %s", c.Cluster.KeyFile, credential)
	}
}

func between(s, start, end string) string {
	_, s, _ = strings.Cut(s, start)
	s, _, _ = strings.Cut(s, end)
	return s
}

// TestClusterInContainers loads the settings of the nodes of the compose file.
func TestClusterInContainers(t *testing.T) {
	d := documents(t, "compose.yaml")[0]
	settings := at(t, d, "configs", "settings", "content").(string)
	settings = strings.NewReplacer("${UPSTREAM_ENDPOINT:?set the URL of the upstream S3 server}", "https://s3.example.com",
		"${UPSTREAM_BUCKET:-models}", "models").Replace(settings)
	services := at(t, d, "services").(map[string]any)
	if len(services) != 3 {
		t.Errorf("%d services", len(services))
	}
	for name, s := range services {
		env := map[string]string{}
		for variable, value := range at(t, s, "environment").(map[string]any) {
			env[variable], _ = value.(string)
		}
		c := accepted(t, settings, env)
		if !slices.Contains(c.Cluster.Seeds, name) || at(t, s, "hostname") != name {
			t.Errorf("%s is no seed, or has another host name", name)
		}
		if secret := at(t, s, "secrets", 0).(string); c.Cluster.KeyFile != "/run/secrets/"+secret {
			t.Errorf("the key is at %s, and the secret is %s", c.Cluster.KeyFile, secret)
		}
	}
}

// TestClusterInKubernetes loads the settings of the nodes of the DaemonSet, and compares its parts with each other.
func TestClusterInKubernetes(t *testing.T) {
	kinds := map[string]map[string]any{}
	for _, d := range documents(t, "daemonset.yaml") {
		kind := at(t, d, "kind").(string)
		if _, twice := kinds[kind]; !twice {
			kinds[kind] = d
		}
		if at(t, d, "metadata", "namespace") != "nebulaio" || at(t, d, "apiVersion") == "" {
			t.Errorf("%s is in another namespace, or has no version", kind)
		}
	}
	pod := at(t, kinds["DaemonSet"], "spec", "template", "spec")
	env := map[string]string{}
	for _, v := range at(t, pod, "containers", 0, "env").([]any) {
		env[at(t, v, "name").(string)] = "127.0.0.1"
		if value, ok := v.(map[string]any)["value"].(string); ok {
			env[at(t, v, "name").(string)] = value
		}
	}
	env["NEBULAIO_ROOT_USER"], env["NEBULAIO_ROOT_PASSWORD"] = "somebody", "something-long"
	settings := at(t, kinds["ConfigMap"], "data", "nebulaio.yaml").(string)
	c := accepted(t, settings, env)
	service := kinds["Service"]
	if at(t, service, "spec", "clusterIP") != "None" ||
		c.Cluster.Seeds[0] != at(t, service, "metadata", "name").(string)+".nebulaio.svc.cluster.local" {
		t.Errorf("the seed %s is not the headless service", c.Cluster.Seeds[0])
	}
	labels := at(t, kinds["DaemonSet"], "spec", "template", "metadata", "labels", "app")
	for _, selector := range []any{at(t, kinds["DaemonSet"], "spec", "selector", "matchLabels", "app"),
		at(t, service, "spec", "selector", "app")} {
		if selector != labels {
			t.Errorf("a selector is %v, and pods have %v", selector, labels)
		}
	}
	volumes := map[any]bool{}
	for _, v := range at(t, pod, "volumes").([]any) {
		volumes[at(t, v, "name")] = true
	}
	mounts := at(t, pod, "containers", 0, "volumeMounts").([]any)
	keyAt := ""
	for _, m := range mounts {
		if !volumes[at(t, m, "name")] {
			t.Errorf("there is no volume %v", at(t, m, "name"))
		}
		if at(t, m, "name") == "key" {
			keyAt = at(t, m, "mountPath").(string)
		}
	}
	if len(mounts) != len(volumes) || filepath.Dir(c.Cluster.KeyFile) != keyAt {
		t.Errorf("%d mounts of %d volumes; the key is at %s", len(mounts), len(volumes), c.Cluster.KeyFile)
	}
	for _, u := range c.Upstream {
		if u.AccessKeyEnv != "" && env[u.AccessKeyEnv] == "" || u.SecretKeyEnv != "" && env[u.SecretKeyEnv] == "" {
			t.Errorf("the pod lacks %s or %s", u.AccessKeyEnv, u.SecretKeyEnv)
		}
	}
}
