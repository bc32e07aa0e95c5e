// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// exercised names, for each package that holds locks and starts no goroutine, a raced package whose tests use it from
// several goroutines.
var exercised = map[string]string{
	"./internal/boot":                "./internal/abi",
	"./internal/console":             "./internal/node",
	"./internal/console/transfers":   "./internal/node",
	"./internal/data/tokens/charset": "./internal/data/tokens",
	"./internal/device/fakegpu":      "./internal/device/cuda",
	"./internal/keyring":             "./internal/store/disk",
	"./internal/model":               "./.",
	"./internal/object":              "./internal/store/disk",
	"./internal/s3api/express":       "./internal/s3api",
	"./internal/store/model":         "./internal/store/cache",
	"./internal/store/sealed":        "./internal/store/disk",
	"./internal/transfer/verify":     "./internal/transfer",
	"./internal/uring":               "./internal/transfer",
	"./internal/vfs/vfstest":         "./internal/vfs",
}

// TestLocksAreRaced checks that the race detector sees each package with locks: it starts goroutines itself, or a raced
// package that uses it is named.
func TestLocksAreRaced(t *testing.T) {
	t.Chdir("../..")
	raced, locks, err := findRaced(".")
	locks = slices.DeleteFunc(locks, func(name string) bool { return strings.HasPrefix(name, "./test/") })
	if err != nil || len(raced) < 28 {
		t.Fatalf("%d raced packages, %v", len(raced), err)
	}
	for _, name := range locks {
		by := exercised[name]
		if by == "" {
			t.Errorf("%s holds locks, and test/count/raced_test.go does not name a raced package that exercises it", name)
			continue
		}
		if !slices.Contains(raced, by) {
			t.Errorf("%s is exercised by %s, which is not raced", name, by)
		}
	}
	users := map[string][]string{}
	for name, by := range exercised {
		if !slices.Contains(locks, name) {
			t.Errorf("%s holds no locks, or starts goroutines itself", name)
		}
		users[by] = append(users[by], name)
	}
	for by, names := range users {
		out, err := exec.Command("go", "list", "-deps", "-test", "-f", "{{.ImportPath}}", by).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.Contains(string(out), strings.TrimPrefix(name, ".")) {
				t.Errorf("%s does not use %s", by, name)
			}
		}
	}
}
