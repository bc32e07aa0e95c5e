// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"os"
	"sync"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Clients opens places, with one client for each profile. All methods of Clients are safe for concurrent use.
type Clients struct {
	settings Settings

	mu  sync.Mutex
	all map[string]*opened
}

type opened struct {
	client  *s3.Client
	account Account
}

// NewClients returns an empty set of clients. The caller closes it.
func NewClients(s Settings) *Clients { return &Clients{settings: s, all: map[string]*opened{}} }

// Open returns the tree of a place. For an S3 place, Open finds the server and the keys as Resolve describes. If the
// place names a profile, the server and the keys come from that profile alone, and not from the settings.
func (c *Clients) Open(ctx context.Context, p Place) (Tree, error) {
	if !p.Remote() {
		return Tree{Place: p}, nil
	}
	o, err := c.of(ctx, p.Profile)
	if err != nil {
		return Tree{}, errs.Wrap("open", p.String(), err)
	}
	return Tree{Place: p, Client: o.client}, nil
}

// Account returns the server and the keys of the places of a profile; "" means those of the settings.
func (c *Clients) Account(ctx context.Context, profile string) (Account, error) {
	o, err := c.of(ctx, profile)
	if err != nil {
		return Account{}, err
	}
	return o.account, nil
}

func (c *Clients) of(ctx context.Context, profile string) (*opened, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.all[profile]; o != nil {
		return o, nil
	}
	s := c.settings
	if profile != "" {
		s.Profile, s.Endpoint, s.Region, s.AccessKey, s.SecretKey, s.SessionToken = profile, "", "", "", "", ""
		env := s.Env
		if env == nil {
			env = os.Getenv
		}
		// What the profile does not say comes from no variable: it belongs to the other server.
		s.Env = func(name string) string {
			switch name {
			case "NEBULAIO_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION":
				return ""
			}
			return env(name)
		}
	}
	a, err := Resolve(ctx, s)
	if err != nil {
		return nil, err
	}
	client, err := s3.New(a.Options())
	if err != nil {
		return nil, err
	}
	o := &opened{client, a}
	c.all[profile] = o
	return o, nil
}

// Close closes the idle connections of all clients.
func (c *Clients) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.all {
		_ = o.client.Close() // which cannot fail
	}
	return nil
}
