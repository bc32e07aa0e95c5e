// SPDX-License-Identifier: Apache-2.0

package minioiam

import (
	"archive/zip"
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func archiveOf(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, text := range files {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// whole has a file of each kind, as MinIO writes them.
func whole() map[string]string {
	return map[string]string{
		"iam-assets/policies.json": `{"models":{"Version":"2012-10-17","Statement":[]}}`,
		"iam-assets/users.json": `{"bob":{"secretKey":"bobssecret","status":"disabled"},
			"alice":{"secretKey":"alicesecret","status":"enabled"}}`,
		"iam-assets/groups.json": `{"team":{"version":1,"status":"enabled","members":["alice"]}}`,
		"iam-assets/svcaccts.json": `{"key1":{"parent":"alice","accessKey":"key1","secretKey":"keysecret","groups":[],
			"claims":{"a":1},"sessionPolicy":{"Version":"2012-10-17"},"status":"on","name":"ci","description":"runs",
			"expiration":"2030-01-02T03:04:05Z"},
			"key2":{"parent":"alice","secretKey":"keysecret","sessionPolicy":null,"status":"off",
			"expiration":"1970-01-01T00:00:00Z"}}`,
		"iam-assets/user_mappings.json":    `{"alice":{"version":0,"policy":"models, readonly"}}`,
		"iam-assets/group_mappings.json":   `{"team":{"policy":"readwrite"}}`,
		"iam-assets/stsuser_mappings.json": `{}`,
	}
}

func TestAnExportIsRead(t *testing.T) {
	raw := archiveOf(t, whole())
	got, err := Read(bytes.NewReader(raw), int64(len(raw)), "x.zip")
	if err != nil {
		t.Fatal(err)
	}
	want := &Export{
		Policies: []Policy{{Name: "models", Text: []byte(`{"Version":"2012-10-17","Statement":[]}`)}},
		Users: []User{{AccessKey: "alice", Secret: "alicesecret", Policies: []string{"models", "readonly"}},
			{AccessKey: "bob", Secret: "bobssecret", Disabled: true}},
		Groups: []Group{{Name: "team", Members: []string{"alice"}, Policies: []string{"readwrite"}}},
		Keys: []Key{{AccessKey: "key1", Secret: "keysecret", Parent: "alice", Description: "ci runs",
			Policy: []byte(`{"Version":"2012-10-17"}`), Expires: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)},
			{AccessKey: "key2", Secret: "keysecret", Parent: "alice", Disabled: true}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nexpected %+v", got, want)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	broken := whole()
	broken["iam-assets/users.json"] = `{"alice":[]}`
	bomb := whole()
	bomb["iam-assets/users.json"] = strings.Repeat(" ", mostBytes+1)
	for name, raw := range map[string][]byte{
		"no ZIP archive":   []byte("hello"),
		"no file below":    archiveOf(t, map[string]string{"users.json": "{}"}),
		"users.json: json": archiveOf(t, broken),
		"more than 64":     archiveOf(t, bomb),
	} {
		_, err := Read(bytes.NewReader(raw), int64(len(raw)), "x.zip")
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "x.zip") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(archiveOf(f, whole()))
	f.Add([]byte("PK"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, err := Read(bytes.NewReader(raw), int64(len(raw)), "x")
		if (e == nil) == (err == nil) {
			t.Fatalf("%v %v", e, err)
		}
		if err != nil && !errs.Is(err, errs.Corrupt) {
			t.Fatal(err)
		}
	})
}
