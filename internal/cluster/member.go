// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Version is the version of the protocol between members. A member with another version owns no extents.
const Version = 1

// Largest lengths in bytes of the name and the zone of a member, and the largest weight.
const (
	MaxName   = 128
	MaxZone   = 64
	MaxWeight = 1_000_000
)

// Member is a node of the cluster as this node knows it.
type Member struct {
	Name    string `json:"name"`
	Address string `json:"address"` // HOST:PORT of the member's listener for other members
	Gossip  string `json:"gossip"`  // HOST:PORT at which the member receives gossip
	Zone    string `json:"zone"`
	Weight  int    `json:"weight"`
	Version int    `json:"version"`
	Self    bool   `json:"self"` // whether the member is this node
}

// about is what a member says about itself in its gossip. The address of the member is the address of its gossip.
type about struct {
	Version int    `json:"v"`
	Port    int    `json:"p"`
	Zone    string `json:"z,omitempty"`
	Weight  int    `json:"w"`
}

// encode returns the gossip form of a. With the limits above, the form is shorter than memberlist's limit of 512 bytes.
func (a about) encode() ([]byte, error) { return json.Marshal(a) }

// decodeAbout reads the gossip form of a member. A newer version may have fields that this version ignores.
func decodeAbout(b []byte) (about, error) {
	var a about
	if err := json.Unmarshal(b, &a); err != nil {
		return about{}, errs.New(errs.Invalid, "read", "a member's description", err.Error())
	}
	switch {
	case a.Version < 1:
		return about{}, errs.New(errs.Invalid, "read", "a member's description", fmt.Sprintf("version %d is less than 1",
			a.Version))
	case a.Port < 1 || a.Port > 65535:
		return about{}, errs.New(errs.Invalid, "read", "a member's description",
			fmt.Sprintf("port %d; expected a number from 1 to 65535", a.Port))
	case len(a.Zone) > MaxZone:
		return about{}, errs.New(errs.Invalid, "read", "a member's description",
			fmt.Sprintf("the zone has %d bytes; expected at most %d", len(a.Zone), MaxZone))
	case a.Weight < 0 || a.Weight > MaxWeight:
		return about{}, errs.New(errs.Invalid, "read", "a member's description",
			fmt.Sprintf("weight %d; expected a number from 0 to %d", a.Weight, MaxWeight))
	}
	return a, nil
}
