// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/object"
)

// SettingBlock is the key of object.Bucket.Settings that holds the public access block of a bucket.
const SettingBlock = "public-access-block"

// Block is the public access block of a bucket. The zero Block blocks nothing.
type Block struct {
	// BlockPublicAcls refuses new ACLs that grant something to everybody or to all accounts.
	BlockPublicAcls bool
	// IgnorePublicAcls takes the effect from grants to everybody and to all accounts.
	IgnorePublicAcls bool
	// BlockPublicPolicy refuses new bucket policies that are public.
	BlockPublicPolicy bool
	// RestrictPublicBuckets takes the effect from a public bucket policy, except for the bucket's owner.
	RestrictPublicBuckets bool
}

// BlockOf returns the public access block of a bucket. A stored block that cannot be read blocks everything.
func BlockOf(bk *object.Bucket) Block {
	text, ok := bk.Settings[SettingBlock]
	if !ok {
		return Block{}
	}
	var b Block
	if json.Unmarshal(text, &b) != nil {
		return Block{BlockPublicAcls: true, IgnorePublicAcls: true, BlockPublicPolicy: true, RestrictPublicBuckets: true}
	}
	return b
}

// IsPublic reports whether a bucket policy is public, as S3 defines it. A policy is public if a statement allows
// something to everybody, and no condition of the statement fixes the clients. A statement for services is not public.
// A text that is no policy is public.
func IsPublic(text []byte, bucket string) bool {
	doc, err := parse(text, bucket)
	if err != nil {
		return true
	}
	return doc.isPublic()
}

func (p *bucketPolicy) isPublic() bool {
	return slices.ContainsFunc(p.statements, func(s statement) bool {
		if s.effect != "Allow" || s.fault != nil {
			return false
		}
		return slices.Contains(s.principals, "*") && !fixesClients(s.condition)
	})
}

// fixingKeys are the condition keys that fix the clients of a statement, by the operators that do so.
var fixingKeys = map[string][]string{
	"aws:sourceip": {"IpAddress"}, "aws:username": {"StringEquals"}, "aws:userid": {"StringEquals"},
	"aws:principalarn": {"StringEquals", "ArnEquals"}, "aws:sourceaccount": {"StringEquals", "StringLike"},
	"aws:sourcearn": {"StringEquals", "StringLike", "ArnEquals", "ArnLike"},
}

// fixesClients reports whether a condition lets only certain clients pass: fixed accounts, or a network of at most 2^24
// addresses.
func fixesClients(raw json.RawMessage) bool {
	if raw == nil {
		return false
	}
	var c Condition
	if json.Unmarshal(raw, &c) != nil {
		return false
	}
	for operator, keys := range c {
		for key, raw := range keys {
			operators, ok := fixingKeys[strings.ToLower(key)]
			if !ok || !slices.Contains(operators, strings.TrimPrefix(operator, "ForAnyValue:")) {
				continue
			}
			values, err := scalarsOf(raw)
			if err == nil && !slices.ContainsFunc(values, func(v string) bool { return !fixed(operator, v) }) {
				return true
			}
		}
	}
	return false
}

// fixed reports whether a condition with this value lets only certain clients pass: one account, or a network that is
// small enough for fixesClients.
func fixed(operator, value string) bool {
	if !strings.HasSuffix(operator, "IpAddress") {
		return !strings.ContainsAny(value, "*?$")
	}
	if !strings.Contains(value, "/") {
		_, err := netip.ParseAddr(value)
		return err == nil
	}
	network, err := netip.ParsePrefix(value)
	if err != nil {
		return false
	}
	least := 8
	if network.Addr().Is6() {
		least = 32
	}
	return network.Bits() >= least
}
