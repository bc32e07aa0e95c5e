// SPDX-License-Identifier: Apache-2.0

// Package minioiam reads the archive of users, groups, policies and service accounts that `mc admin cluster iam export`
// writes.
package minioiam

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// folder is the directory of all files in the archive.
const folder = "iam-assets/"

// mostBytes bounds what is read of one file of an archive: a small archive can unpack to very much.
const mostBytes = 64 * units.MiB

// Export is the content of an archive. Every list is sorted by name.
type Export struct {
	Policies []Policy
	Users    []User
	Groups   []Group
	Keys     []Key
}

// Policy is a policy and its document in JSON.
type Policy struct {
	Name string
	Text []byte
}

// User is a user. Policies are the names of the policies that are attached to the user.
type User struct {
	AccessKey, Secret string
	Disabled          bool
	Policies          []string
}

// Group is a group of users. Policies are the names of the policies that are attached to the group.
type Group struct {
	Name     string
	Disabled bool
	Members  []string
	Policies []string
}

// Key is a service account: further keys of the user Parent.
type Key struct {
	AccessKey, Secret   string
	Parent, Description string
	Disabled            bool
	Policy              []byte    // the JSON of the policy that limits the service account; nil if there is none
	Expires             time.Time // the zero time means never
}

type userFile struct {
	Secret string `json:"secretKey"`
	Status string `json:"status"`
}

type groupFile struct {
	Status  string   `json:"status"`
	Members []string `json:"members"`
}

type mappingFile struct {
	Policies string `json:"policy"` // names, separated by commas
}

type keyFile struct {
	Parent      string          `json:"parent"`
	Secret      string          `json:"secretKey"`
	Policy      json.RawMessage `json:"sessionPolicy"`
	Status      string          `json:"status"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Expires     *time.Time      `json:"expiration"`
}

// Read reads an archive of the given size. The parameter name is used only in errors. Read fails with kind Corrupt if
// the archive or one of its files is damaged or is none of MinIO's.
func Read(r io.ReaderAt, size int64, name string) (*Export, error) {
	archive, err := zip.NewReader(r, size)
	if err != nil {
		return nil, corrupt(name, fmt.Errorf("it is no ZIP archive: %w", err))
	}
	var (
		policies       map[string]json.RawMessage
		users          map[string]userFile
		groups         map[string]groupFile
		keys           map[string]keyFile
		ofUser, ofTeam map[string]mappingFile
	)
	found := 0
	for file, into := range map[string]any{"policies.json": &policies, "users.json": &users, "groups.json": &groups,
		"svcaccts.json": &keys, "user_mappings.json": &ofUser, "group_mappings.json": &ofTeam} {
		there, err := read(archive, folder+file, into)
		if err != nil {
			return nil, corrupt(name, err)
		}
		if there {
			found++
		}
	}
	if found == 0 {
		return nil, corrupt(name, errors.New("it has no file below "+folder))
	}
	e := &Export{}
	for _, n := range slices.Sorted(maps.Keys(policies)) {
		e.Policies = append(e.Policies, Policy{Name: n, Text: policies[n]})
	}
	for _, n := range slices.Sorted(maps.Keys(users)) {
		e.Users = append(e.Users, User{AccessKey: n, Secret: users[n].Secret, Disabled: users[n].Status == "disabled",
			Policies: names(ofUser[n])})
	}
	for _, n := range slices.Sorted(maps.Keys(groups)) {
		e.Groups = append(e.Groups, Group{Name: n, Disabled: groups[n].Status == "disabled", Members: groups[n].Members,
			Policies: names(ofTeam[n])})
	}
	for _, n := range slices.Sorted(maps.Keys(keys)) {
		e.Keys = append(e.Keys, keys[n].key(n))
	}
	return e, nil
}

// key returns the service account with an access key.
func (k keyFile) key(accessKey string) Key {
	out := Key{AccessKey: accessKey, Secret: k.Secret, Parent: k.Parent, Disabled: k.Status == "off",
		Description: strings.TrimSpace(k.Name + " " + k.Description)}
	if len(k.Policy) > 0 && string(k.Policy) != "null" {
		out.Policy = k.Policy
	}
	// MinIO writes the first second of 1970 for a service account that never expires.
	if k.Expires != nil && k.Expires.Unix() > 0 {
		out.Expires = k.Expires.UTC()
	}
	return out
}

// names returns the policies of a mapping.
func names(m mappingFile) []string {
	var out []string
	for _, n := range strings.Split(m.Policies, ",") {
		if n = strings.TrimSpace(n); n != "" {
			out = append(out, n)
		}
	}
	return out
}

// read reads one JSON file of an archive, and returns false if there is none.
func read(archive *zip.Reader, file string, into any) (bool, error) {
	f, err := archive.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	if len(text) > mostBytes {
		return false, fmt.Errorf("%s has more than %s", file, units.Bytes(mostBytes))
	}
	if err := json.Unmarshal(text, into); err != nil {
		return false, fmt.Errorf("%s: %w", file, err)
	}
	return true, nil
}

func corrupt(name string, err error) error {
	return &errs.Error{Kind: errs.Corrupt, Op: "read the export", Name: name, Err: err,
		Fix: "write it anew with mc admin cluster iam export ALIAS"}
}
