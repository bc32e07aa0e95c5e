// SPDX-License-Identifier: Apache-2.0

package warm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/place"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

func local(t *testing.T, files map[string]string) place.Tree {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "llama")
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return place.Tree{Place: place.Place{Path: dir}}
}

func below(t place.Tree, name string) place.Tree {
	t.Path = filepath.Join(t.Path, name)
	return t
}

func keys(p Plan) string {
	var all []string
	for _, e := range p.Entries {
		all = append(all, e.Key)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

const (
	modelIndex = `{"metadata":{"total_size":2},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}`
	mdsIndex   = `{"version":2,"shards":[{"format":"mds","version":2,"column_names":["x"],"column_encodings":["int"],` +
		`"column_sizes":[8],"compression":null,"hashes":[],"size_limit":100,"samples":1,` +
		`"raw_data":{"basename":"shard.0.mds","bytes":3,"hashes":{}},"zip_data":null}]}`
	litIndex = `{"chunks":[{"chunk_bytes":3,"chunk_size":1,"dim":null,"filename":"chunk-0.bin"}],"config":{"chunk_bytes":3,` +
		`"chunk_size":1,"compression":null,"data_format":["int"],"data_spec":"[1, null]","encryption":null,"item_loader":"PyTreeLoader"}}`
)

func TestPlans(t *testing.T) {
	model := map[string]string{indexName: modelIndex, "m-1.safetensors": "x", "m-2.safetensors": "yy",
		"m-9.safetensors":           "old",
		"m-1.safetensors.crc64nvme": "s", "config.json": "{}", "tokenizer.model": "t", "pytorch_model.bin": "z",
		"pytorch_model.bin.index.json": "{}", "onnx/model.onnx": "o", "m-9.safetensors.crc64nvme": "s", ".hidden": "h"}
	for name, c := range map[string]struct {
		files            map[string]string
		source           string
		kind, plan, want string
	}{
		"a model": {model, "", Model, "llama", "config.json m-1.safetensors m-1.safetensors.crc64nvme m-2.safetensors " +
			indexName + " tokenizer.model"},
		"its index": {model, indexName, Model, "llama",
			"config.json m-1.safetensors m-1.safetensors.crc64nvme m-2.safetensors " + indexName + " tokenizer.model"},
		"one shard": {model, "m-1.safetensors", File, "", "m-1.safetensors m-1.safetensors.crc64nvme"},
		"MDS": {map[string]string{"index.json": mdsIndex, "shard.0.mds": "abc", "shard.1.mds": "old"}, "", MDS, "llama",
			"index.json shard.0.mds"},
		"litData": {map[string]string{"index.json": litIndex, "chunk-0.bin": "abc", "chunk-1.bin": "old"}, "index.json",
			LitData, "llama", "chunk-0.bin index.json"},
		"archives": {map[string]string{"a.tar": "x", "a.tar.nbx": "i", "b.tar": "y"}, "", Anything, "llama",
			"a.tar a.tar.nbx b.tar"},
		"one archive": {map[string]string{"a.tar": "x", "a.tar.nbx": "i", "b.tar": "y"}, "a.tar", File, "",
			"a.tar a.tar.nbx"},
		"tokens":       {map[string]string{"t.bin": "x", "t.idx": "i", "u.bin": "y"}, "t.idx", File, "", "t.bin t.idx"},
		"another JSON": {map[string]string{"index.json": `{"a":1}`, "b/c": "x"}, "", Anything, "llama", "b/c index.json"},
		"not JSON":     {map[string]string{"index.json": "hello"}, "", Anything, "llama", "index.json"},
	} {
		p, err := Make(t.Context(), below(local(t, c.files), c.source))
		if err != nil || p.Kind != c.kind || p.Name != c.plan || keys(p) != c.want || p.LeftOut < 0 {
			t.Errorf("%s: %s %q %q, %v", name, p.Kind, p.Name, keys(p), err)
		}
	}
}

func TestPlansThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string
		source string
		kind   errs.Kind
		want   string
	}{
		"nothing": {map[string]string{"a": ""}, "gone", errs.NotFound, "nothing is there"},
		"a missing shard": {map[string]string{indexName: modelIndex, "m-1.safetensors": "x"}, "", errs.NotFound,
			"m-2.safetensors"},
		"a broken index": {map[string]string{indexName: "{"}, "", errs.Corrupt, indexName},
		"an index outside": {map[string]string{indexName: `{"weight_map":{"a":"../x.safetensors"}}`}, "", errs.Corrupt,
			"x.safetensors"},
		"no index": {map[string]string{"index.json": `{"a":1}`}, "index.json", errs.Invalid, "no index"},
		"chunks of litData outside": {map[string]string{
			"index.json": strings.Replace(litIndex, "chunk-0.bin", "/etc/passwd", 1)}, "", errs.Corrupt, "passwd"},
	} {
		if p, err := Make(t.Context(), below(local(t, c.files), c.source)); !errs.Is(err, c.kind) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}

func TestManifest(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadManifest(dir); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
	p := Plan{Kind: Model, From: place.Tree{Place: place.Place{Bucket: "b", Key: "k"}}, Bytes: 3,
		Entries: []place.Entry{{Key: "a", Size: 3, ETag: "e"}}}
	for range 2 {
		if err := ManifestOf(p, time.Unix(1, 0)).Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	m, err := ReadManifest(dir)
	if err != nil || m.Source != "s3://b/k" || len(m.Files) != 1 || m.Files[0] != (ManifestFile{"a", 3, "e"}) {
		t.Errorf("%+v, %v", m, err)
	}
	if all, _ := os.ReadDir(dir); len(all) != 1 {
		t.Errorf("%v", all)
	}
	if err := os.WriteFile(filepath.Join(dir, ManifestName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifest(dir); !errs.Is(err, errs.Corrupt) {
		t.Errorf("%v", err)
	}
	if err := (Manifest{}).Write(filepath.Join(dir, "gone")); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
}

// A node is asked until each object is whole, and the first failure ends the others.
func TestNode(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		q := r.URL.Query()
		key := q.Get("key")
		asked[key]++
		if key == "bad" {
			fmt.Fprint(w, `{"size":3,"error":"upstream is down","fix":"start it"}`)
			return
		}
		n := min(asked[key], 3)
		fmt.Fprintf(w, `{"size":3,"cached":%d,"whole":%v,"pinned":%v,"verified":"crc64nvme"}`, n, n == 3,
			q.Get("pin") == "24h")
	}))
	t.Cleanup(s.Close)
	c, err := s3.New(s3.Options{Endpoint: s.URL, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	p := Plan{From: place.Tree{Place: place.Place{Bucket: "b"}, Client: c}}
	for i := range 20 {
		p.Entries = append(p.Entries, place.Entry{Name: fmt.Sprint("k", i), Size: 3})
	}
	var last int64
	o := NodeOptions{Pin: "24h", Objects: 3, Wait: context.Cause, Progress: func(n int64) { last = n }}
	r, err := Node(t.Context(), p, o)
	if err != nil || r.Objects != 20 || r.Bytes != 60 || r.Pinned != 20 || r.Verified["crc64nvme"] != 20 || last != 60 {
		t.Errorf("%+v, %d, %v", r, last, err)
	}
	p.Entries = append(p.Entries[:3:3], place.Entry{Name: "bad"}, place.Entry{Name: "k1"})
	if _, err := Node(t.Context(), p, o); !errs.Is(err, errs.IO) || errs.FixOf(err) != "start it" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	o.Wait = func(ctx context.Context) error { cancel(stopped); return context.Cause(ctx) }
	p.Entries = []place.Entry{{Name: "new"}}
	if _, err := Node(ctx, p, o); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
}
