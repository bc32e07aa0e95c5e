// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"strings"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// This file lets the S3 library versitygw ask for identity policies. versitygw combines the answer with the policy or
// the ACL of the bucket, as AWS does inside of one account:
//
//  1. A statement that denies, in any policy, denies the request.
//  2. Otherwise the request is allowed if the bucket's policy, its ACL, its owner, the role or a policy of the user
//     allows it.
//  3. If the keys have a session policy, the session policy has to allow the request, too.

var _ auth.PolicyEvaluator = accounts{}

// unrestricted reports whether the role alone decides about an account, so that versitygw need not ask. A service
// account inherits the policies of its parent, which are not looked up here.
func unrestricted(a iam.Account) bool {
	return !a.Derived() && a.SessionPolicy == "" && len(a.Policies) == 0 && len(a.Groups) == 0
}

// EvaluatePolicy implements auth.PolicyEvaluator. The handle is the field SessionToken that toAuth has set: it names
// the keys that signed the request.
func (a accounts) EvaluatePolicy(access, handle string, actions []auth.Action, resources []string,
	condition map[string][]string) (auth.PolicyEvaluation, error) {
	key, carried := splitHandle(handle)
	if key == "" {
		key = access
	}
	x, err := a.svc.Subject(key)
	if err != nil {
		// removed or expired since the signature was checked
		return auth.PolicyEvaluation{}, s3err.GetAPIError(s3err.ErrAccessDenied)
	}
	out := auth.PolicyEvaluation{HasSessionPolicy: x.Boundary != nil}
	v := values{subject: x, condition: condition, carried: carried}
	verdicts := make([]iam.Verdict, 0, len(resources)*len(actions))
	for _, resource := range resources {
		r := document.Request{Resource: policy.Original(resource)}
		if !x.Plain() {
			r.Value = v.at(a.tags, r.Resource)
		}
		for _, action := range actions {
			r.Action = string(action)
			if action == auth.PutObjectAction && !strings.Contains(r.Resource, "/") {
				// versitygw asks about the bucket of a form, which S3 does not. The key of the form is decided apart.
				verdicts = append(verdicts, iam.Verdict{Session: document.Allow})
				continue
			}
			verdicts = append(verdicts, x.Decide(&r))
		}
	}
	out.Decisions = matrix(out.Decisions, verdicts, len(actions),
		func(v iam.Verdict) document.Decision { return v.Identity })
	if out.HasSessionPolicy {
		out.SessionDecisions = matrix(out.SessionDecisions, verdicts, len(actions),
			func(v iam.Verdict) document.Decision { return v.Session })
	}
	return out, nil
}

// matrix returns the decisions as versitygw expects them: by resource, then by action. The type of versitygw's
// decisions is private, and its values are those of document.Decision in the same order.
func matrix[T ~int](_ [][]T, verdicts []iam.Verdict, actions int, of func(iam.Verdict) document.Decision) [][]T {
	if actions == 0 {
		return nil
	}
	flat := make([]T, len(verdicts))
	for i, v := range verdicts {
		flat[i] = T(of(v))
	}
	out := make([][]T, 0, len(verdicts)/actions)
	for ; len(flat) > 0; flat = flat[actions:] {
		out = append(out, flat[:actions:actions])
	}
	return out
}

// tags returns the tags of an object, for conditions on them. It returns nil if the object does not exist.
func (a accounts) tags(ref object.Ref) map[string]string {
	if a.b == nil {
		return nil
	}
	info, err := a.b.store.Stat(context.Background(), ref)
	if err != nil || info.Marker {
		return nil
	}
	tags, err := decodeTags(info.Attributes[attrTags])
	if err != nil {
		return nil
	}
	return tags
}

// mayCreate returns nil if an account may create a bucket.
func (a accounts) mayCreate(account iam.Account, bucket string) error {
	x, err := a.svc.Subject(account.AccessKey)
	if err == nil {
		v := x.Decide(&document.Request{Action: string(auth.CreateBucketAction), Resource: auth.ResourceArnPrefix + bucket,
			Value: (&values{subject: x}).at(nil, "")})
		if v.Identity == document.Allow && v.Session == document.Allow {
			return nil
		}
	}
	return s3err.GetAPIError(s3err.ErrAccessDenied)
}

// listsAll reports whether an account sees the buckets of all users in the list of buckets: with the role admin, or by
// a policy that allows s3:ListAllMyBuckets, as in AWS.
func (a accounts) listsAll(accessKey string) bool {
	x, err := a.svc.Subject(accessKey)
	if err != nil {
		return false
	}
	if x.Account.Role == iam.RoleAdmin {
		return true
	}
	r := document.Request{Action: string(auth.ListAllMyBucketsAction), Resource: auth.ResourceArnPrefix + "*",
		Value: (&values{subject: x}).at(nil, "")}
	for i := range x.Policies {
		if x.Policies[i].Policy.Decide(&r) == document.Allow {
			return true
		}
	}
	return false
}

// signer returns the access key with which a request was signed. For a service account or a session, that is its own
// key, not the key of its user.
func signer(a auth.Account) string {
	if key, _ := splitHandle(a.SessionToken); key != "" {
		return key
	}
	return a.Access
}

// splitHandle returns the access key and the values of a request that a handle holds.
func splitHandle(handle string) (key, carried string) {
	key, carried, _ = strings.Cut(handle, handleSeparator)
	return key, carried
}

// handleSeparator separates the access key of a handle from the values of a request. No access key contains it.
const handleSeparator = "\n"
