// SPDX-License-Identifier: Apache-2.0

// Package s3suite runs versitygw's own full-flow suite against the S3 front end and the store on disk.
package s3suite

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/s3api"
	"github.com/nebulaio/nebulaio/test/effort"
	"github.com/nebulaio/nebulaio/test/s3suite/player"
)

const access, secret, region = "rootaccess", "rootsecretkey", player.Region

func TestMain(m *testing.M) {
	if player.Play() {
		return
	}
	os.Exit(m.Run())
}

// serve starts the front end over a store in a temporary directory and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	store := openStore(t)
	accounts, err := iam.Open(t.Context(), store, iam.Account{AccessKey: access, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3api.New(s3api.Options{Store: store, Accounts: accounts, Listeners: []net.Listener{l}, Region: region,
		Admin: true, Drain: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

// TestFullFlow runs the suite in its mode for gateways with versions. The other mode is for gateways that lock
// objects without versions, which S3 does not allow.
//
// A few tests of the suite have time limits of seconds. A test that fails while dozens of others run is therefore run
// again alone.
func TestFullFlow(t *testing.T) {
	effort.Slow(t)
	endpoint := serve(t)
	target := player.Target{Endpoint: endpoint, Access: access, Secret: secret}
	all := player.Run(t, target, "")
	var again []string
	for name, r := range all {
		if _, known := expected[name]; !known && r.Passed < r.Ran {
			again = append(again, name)
		}
	}
	if len(again) > 0 && len(again) <= maxAgain {
		for name, r := range player.Run(t, target, strings.Join(again, ",")) {
			if r.Passed == r.Ran {
				t.Logf("%s failed and passed when run alone: %s", name, all[name].Why)
				all[name].Passed = all[name].Ran
			}
		}
	}
	judge(t, all)
}

// maxAgain is the largest number of tests that are run again. More failures are no accident.
const maxAgain = 8
