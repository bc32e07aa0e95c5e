// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// jsonLines reads the JSON objects of stdout, one per line.
func jsonLines(t *testing.T, r result) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(r.out) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		all = append(all, v)
	}
	return all
}

// placesRig is a server, a home with a profile for it, and a directory.
type placesRig struct {
	t    *testing.T
	m    *minio.Client
	home func(*World)
	dir  string
}

func newPlacesRig(t *testing.T) *placesRig {
	t.Helper()
	p := startServer(t, filepath.Join(t.TempDir(), "store"),
		[]string{"NEBULAIO_ROOT_USER=cli-user", "NEBULAIO_ROOT_PASSWORD=cli-password-1"})
	m, err := minio.New(strings.TrimPrefix(p.Endpoint, "http://"),
		&minio.Options{Creds: credentials.NewStaticV4("cli-user", "cli-password-1", ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, ".aws"), 0o700); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(
		"[profile mine]\nservices = x\naws_access_key_id = cli-user\naws_secret_access_key = cli-password-1\n"+
			"[services x]\ns3 =\n  endpoint_url = %s\n", p.Endpoint)
	if err := os.WriteFile(filepath.Join(home, ".aws", "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stop(os.Interrupt) })
	return &placesRig{t: t, m: m, home: env(map[string]string{"HOME": home, "AWS_PROFILE": "mine"}), dir: t.TempDir()}
}

func (g *placesRig) run(args ...string) result {
	g.t.Helper()
	return run(g.t, args, g.home)
}

// file writes a file below the rig's directory.
func (g *placesRig) file(name string, content []byte) {
	g.t.Helper()
	path := filepath.Join(g.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		g.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		g.t.Fatal(err)
	}
}

// put stores an object.
func (g *placesRig) put(key string, content []byte) {
	g.t.Helper()
	if _, err := g.m.PutObject(g.t.Context(), "box", key, bytes.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{}); err != nil {
		g.t.Fatal(err)
	}
}

// TestPlacesOfAServer lists, reads, counts, compares and deletes with the keys of a profile.
func TestPlacesOfAServer(t *testing.T) {
	g := newPlacesRig(t)
	g.run("mb", "s3://box", "s3://other").want(t, 0, "made      s3://box\nmade      s3://other\n")
	g.run("mb", "s3://box").want(t, 2, "s3://box", "choose another name")
	g.run("ls").want(t, 0, "  box\n", "  other\n")
	for _, name := range []string{"t/a/x", "t/a.b", "t/a0", "t2/y"} {
		g.file(name, []byte(name))
		g.put(name, []byte(name))
	}
	t.Run("ls", func(t *testing.T) {
		g.run("ls", "s3://box").want(t, 0, "folder  t/\n", "folder  t2/\n")
		g.run("ls", "s3://box/t").want(t, 0, "folder  t/\n", "folder  t2/\n")
		g.run("ls", "s3://box/t/").want(t, 0, "folder  a/\n", "5  a.b\n", "4  a0\n")
		g.run("ls", "s3://box/t/a").want(t, 0, "folder  a/\n", "5  a.b\n", "4  a0\n")
		g.run("ls", "-r", "s3://mine@box").want(t, 0, "5  t/a.b\n", "5  t/a/x\n", "4  t2/y\n")
		g.run("ls", "s3://box/nothing").want(t, 3, "no key begins with this name")
		g.run("ls", "s3://gone").want(t, 3, "NoSuchBucket")
		g.run("ls", g.dir+"/t").want(t, 0, "folder  a/\n", "5  a.b\n")
		g.run("ls", g.dir+"/gone").want(t, 3, "gone")
		all := jsonLines(t, g.run("ls", "-r", "--json", "s3://box/t/"))
		if len(all) != 3 || all[0]["name"] != "s3://box/t/a.b" || all[0]["size"] != 5.0 || all[0]["etag"] == "" ||
			all[0]["type"] != "object" {
			t.Errorf("%v", all)
		}
		if all := jsonLines(t, g.run("ls", "--json", "s3://gone")); len(all) != 1 || all[0]["error"] == nil {
			t.Errorf("%v", all)
		}
	})
	t.Run("cat", func(t *testing.T) {
		for args, want := range map[string]string{"s3://box/t/a.b": "t/a.b", "--range 0-1 s3://box/t/a.b": "t/",
			"--range -2 s3://box/t/a.b": ".b", "--range 2- s3://box/t/a.b s3://box/t/a0": "a.ba0",
			"--range 1-99 " + g.dir + "/t/a0": "/a0", g.dir + "/t/a0 s3://box/t2/y": "t/a0t2/y"} {
			if r := g.run(append([]string{"cat"}, strings.Fields(args)...)...); r.code != 0 || r.out != want {
				t.Errorf("%s: %+v", args, r)
			}
		}
		g.run("cat", "s3://box/t/").want(t, 2, "is a folder or bucket")
		g.run("cat", g.dir).want(t, 2, "is a directory")
		g.run("cat", "s3://box/gone").want(t, 3, "s3://box/gone")
		g.run("cat", "--range", "9-", "s3://box/t/a.b").want(t, 2, "byte 9 was asked for, it has 5")
		for _, bad := range []string{"x", "5-1", "-", "-0", "+1-2", "1", "--"} {
			g.run("cat", "--range="+bad, "s3://box/t/a.b").want(t, 2, "expected a range such as 0-99")
		}
	})
	t.Run("du", func(t *testing.T) {
		g.run("du", "s3://box", "--depth", "1").want(t, 0, "14           3  s3://box/t/\n", "4           1  s3://box/t2/\n",
			"18           4  s3://box\n")
		g.run("du", g.dir, "--depth", "2", "--exclude", "*0").want(t, 0, "5           1  "+g.dir+"/t/a/\n",
			"14           3  "+g.dir+"\n")
		g.run("du", "s3://box/t/a0").want(t, 0, "4           1  s3://box/t/a0\n")
		g.run("du", "s3://box/gone").want(t, 3, "nothing is there")
		if all := jsonLines(t, g.run("du", "--json", "s3://box/t")); len(all) != 1 || all[0]["objects"] != 3.0 {
			t.Errorf("%v", all)
		}
	})
	t.Run("verify", func(t *testing.T) {
		g.run("verify", g.dir, "s3://box").want(t, 0, "same      4 objects, 18 B (4 by crc64nvme+read)\n",
			"0 different, 0 missing, 0 extra, 0 failed; 18 B read")
		g.run("verify", "s3://mine@box", "s3://box").want(t, 0, "(4 by crc64nvme)", "0 B read")
		g.put("t/a0", []byte("T/a0"))
		g.put("zz", nil)
		found(t, g.run("verify", g.dir, "s3://box"), 5, "different t/a0: the checksums differ (crc64nvme+read)\n",
			"extra     zz\n", "1 different, 0 missing, 1 extra")
		found(t, g.run("verify", g.dir, "s3://box", "--read"), 5, "different t/a0: the block at byte 0 differs\n")
		found(t, g.run("verify", "s3://box", g.dir, "--exclude", "t/a0"), 3, "missing   zz\n")
		all := jsonLines(t, g.run("verify", g.dir, "s3://box", "--json"))
		if len(all) != 3 || all[0]["outcome"] != "different" || all[1]["key"] != "zz" || all[2]["outcome"] != "summary" {
			t.Errorf("%v", all)
		}
		g.run("verify", g.dir, "s3://box/gone").want(t, 3, "nothing is there")
		g.run("verify", g.dir).want(t, 2, "expected two places")
	})
	t.Run("rm", func(t *testing.T) { removeFromBox(t, g) })
	g.run("rb", "s3://box").want(t, 2, "--force")
	g.run("rb", "s3://box", "s3://other", "--force").want(t, 0, "removed   s3://box\nremoved   s3://other\n", "deleted   ")
	g.run("rb", "s3://box/x").want(t, 2, "is no bucket")
	if r := g.run("ls"); r.code != 0 || r.out != "" {
		t.Errorf("%+v", r)
	}
}

// removeFromBox deletes objects, and refuses what would delete more than was said.
func removeFromBox(t *testing.T, g *placesRig) {
	t.Helper()
	g.run("rm", "s3://box").want(t, 2, "is a bucket with 5 objects", "--recursive")
	g.run("rm", "s3://box/t").want(t, 2, "is a prefix with 3 objects", "--recursive")
	g.run("rm", "s3://box/gone").want(t, 3, "there is no such object")
	g.run("rm", g.dir).want(t, 2, "is a local path", "rm of the shell")
	g.run("rm", "s3://box/zz", g.dir).want(t, 2, "is a local path")
	g.run("rm", "s3://").want(t, 2, "names no bucket")
	g.run("rm", "s3://box/t", "--include", "x").want(t, 2, "give --recursive too")
	g.run("rm", "-r", "s3://box/t", "--exclude", "*", "--include", "a.*", "--dry-run").want(t, 0,
		"would delete s3://box/t/a.b\n")
	g.run("rm", "-r", "s3://box/t", "--exclude", "*", "--include", "a.*").want(t, 0, "deleted   1 object, 5 B\n")
	all := jsonLines(t, g.run("rm", "-r", "--json", "s3://box/t"))
	if len(all) != 3 || all[0]["action"] != "delete" || all[2]["deleted"] != 2.0 {
		t.Errorf("%v", all)
	}
	// Neither s3://box/t2 nor anything else was below s3://box/t.
	g.run("ls", "-r", "s3://box").want(t, 0, "t2/y\n", "zz\n")
	if err := g.m.EnableVersioning(t.Context(), "box"); err != nil {
		t.Fatal(err)
	}
	g.put("v/k", []byte("1"))
	g.put("v/k", []byte("22"))
	g.put("v/k2", []byte("3"))
	g.run("rm", "s3://box/v/k").want(t, 0, "deleted   1 object, 2 B\n")
	r := g.run("ls", "--versions", "s3://box/v/")
	r.want(t, 0, "deleted  k  ", " (latest)\n", "1  k  ", "2  k  ", "1  k2  ")
	if strings.Count(r.out, "\n") != 4 {
		t.Errorf("%s", r.out)
	}
	g.run("rm", "s3://box/v/k", "--versions").want(t, 0, "deleted   3 objects, 3 B\n")
	g.run("rm", "s3://box/v/k", "--versions").want(t, 3, "no version")
	g.run("rm", "s3://box/v", "-r", "--versions").want(t, 0, "deleted   1 object, 1 B\n")
	g.run("rm", "s3://box/zz").want(t, 0, "deleted   1 object")
}

// TestWarmToADirectory brings a model to a directory, twice.
func TestWarmToADirectory(t *testing.T) {
	g := newPlacesRig(t)
	g.run("mb", "s3://box").want(t, 0)
	dir, _ := shardedModel(t)
	g.run("sync", dir, "s3://box/llama").want(t, 0)
	g.put("llama/config.json", []byte("{}"))
	g.put("llama/pytorch_model.bin", []byte("other weights"))
	to := filepath.Join(g.dir, "nvme")
	g.run("warm", "s3://box/llama", "--to", to, "--dry-run").want(t, 0, "would bring config.json\n", "(model)",
		"1 others are not in the index")
	if _, err := os.Stat(to); !os.IsNotExist(err) {
		t.Errorf("a dry run left something: %v", err)
	}
	g.run("warm", "s3://box/llama", "--to", to).want(t, 0, "to        "+to+"/llama\n", ": crc64nvme of the whole",
		"0 were there already", ".nebulaio-warm.json")
	g.run("warm", "s3://box/llama", "--to", to, "--verify").want(t, 0, "copied    0 files", "with the source")
	g.run("load", filepath.Join(to, "llama"), "--device", "host").want(t, 0, "tensors   54 in ")
	found(t, g.run("verify", "s3://box/llama", filepath.Join(to, "llama")), 3, "missing   pytorch_model.bin\n", "0 extra")
	if err := os.WriteFile(filepath.Join(to, "llama", "config.json"), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.run("warm", "s3://box/llama", "--to", to, "--verify").want(t, 5, "config.json", "differs from the source")
	g.run("warm", "s3://box/llama/config.json", "--to", filepath.Join(to, "one"), "--json").want(t, 0, `"kind": "file"`)
	g.run("warm", "s3://box/llama").want(t, 2, "no destination")
	g.run("warm", "s3://box/llama", "--to", "s3://box/x").want(t, 2, "nebulaio sync")
	g.run("warm", "s3://box/llama", "--to", to, "--pin", "24h").want(t, 2, "leave out --pin")
	g.run("warm", "s3://box/llama", "--to", to, "--pin", "x").want(t, 2, "forever, or a time")
	g.run("warm", "s3://box/gone", "--to", to).want(t, 3, "nothing is there")
}

// TestProfiles: a bad profile stops what needs a server, and nothing else.
func TestProfiles(t *testing.T) {
	bad := env(map[string]string{"HOME": t.TempDir(), "AWS_PROFILE": "gone"})
	run(t, []string{"load", tinyModel(t), "--device", "host"}, bad).want(t, 0)
	run(t, []string{"load", "s3://b/k", "--device", "host"}, bad).want(t, 3, "read profile gone", "aws configure")
	run(t, []string{"ls", "s3://b"}, bad).want(t, 3, "read profile gone")
	run(t, []string{"ls", "ftp://b"}).want(t, 2, `the scheme "ftp"`)
	run(t, []string{"ls", "--endpoint", "http://127.0.0.1:1", "--access-key", "a"}).want(t, 2, "has no secret key")
}
