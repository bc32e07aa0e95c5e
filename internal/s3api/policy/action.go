// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/versity/versitygw/auth"
)

// knownActions are the actions that policies can name, in versitygw's spelling.
var knownActions = []auth.Action{
	auth.GetBucketAclAction, auth.CreateBucketAction, auth.PutBucketAclAction, auth.DeleteBucketAction,
	auth.PutBucketVersioningAction, auth.GetBucketVersioningAction, auth.PutBucketPolicyAction,
	auth.GetBucketPolicyAction, auth.DeleteBucketPolicyAction, auth.AbortMultipartUploadAction,
	auth.ListMultipartUploadPartsAction, auth.ListBucketMultipartUploadsAction, auth.PutObjectAction,
	auth.GetObjectAction, auth.GetObjectVersionAction, auth.DeleteObjectAction, auth.DeleteObjectVersionAction,
	auth.GetObjectAclAction, auth.GetObjectAttributesAction, auth.GetObjectVersionAttributesAction,
	auth.PutObjectAclAction, auth.RestoreObjectAction, auth.GetBucketTaggingAction, auth.PutBucketTaggingAction,
	auth.GetObjectTaggingAction, auth.GetObjectVersionTaggingAction, auth.PutObjectTaggingAction,
	auth.PutObjectVersionTaggingAction, auth.DeleteObjectTaggingAction, auth.DeleteObjectVersionTaggingAction,
	auth.ListBucketVersionsAction, auth.ListBucketAction, auth.GetBucketObjectLockConfigurationAction,
	auth.PutBucketObjectLockConfigurationAction, auth.GetObjectLegalHoldAction, auth.PutObjectLegalHoldAction,
	auth.GetObjectRetentionAction, auth.PutObjectRetentionAction, auth.BypassGovernanceRetentionAction,
	auth.PutBucketOwnershipControlsAction, auth.GetBucketOwnershipControlsAction, auth.PutBucketCorsAction,
	auth.GetBucketCorsAction, auth.PutAnalyticsConfigurationAction, auth.GetAnalyticsConfigurationAction,
	auth.PutEncryptionConfigurationAction, auth.GetEncryptionConfigurationAction,
	auth.PutIntelligentTieringConfigurationAction, auth.GetIntelligentTieringConfigurationAction,
	auth.PutInventoryConfigurationAction, auth.GetInventoryConfigurationAction, auth.PutLifecycleConfigurationAction,
	auth.GetLifecycleConfigurationAction, auth.PutBucketLoggingAction, auth.GetBucketLoggingAction,
	auth.PutBucketRequestPaymentAction, auth.GetBucketRequestPaymentAction, auth.PutMetricsConfigurationAction,
	auth.GetMetricsConfigurationAction, auth.PutReplicationConfigurationAction,
	auth.GetReplicationConfigurationAction, auth.PutBucketPublicAccessBlockAction,
	auth.GetBucketPublicAccessBlockAction, auth.PutBucketNotificationAction, auth.GetBucketNotificationAction,
	auth.PutAccelerateConfigurationAction, auth.GetAccelerateConfigurationAction, auth.PutBucketWebsiteAction,
	auth.GetBucketWebsiteAction, auth.DeleteBucketWebsiteAction, auth.GetBucketPolicyStatusAction,
	auth.GetBucketLocationAction,
}

// KnownActions returns the actions that policies can name.
func KnownActions() []string {
	out := make([]string, len(knownActions))
	for i, a := range knownActions {
		out[i] = string(a)
	}
	return out
}

// actionsLike returns the known actions that match a pattern regardless of case, as in S3. The pattern must begin
// with s3: literally, without a wildcard.
func actionsLike(pattern string) []auth.Action {
	if pattern == "*" || strings.EqualFold(pattern, string(auth.AllActions)) {
		return []auth.Action{auth.AllActions}
	}
	lower := auth.Action(strings.ToLower(pattern))
	if !strings.HasPrefix(string(lower), "s3:") {
		return nil
	}
	var out []auth.Action
	for _, a := range knownActions {
		if auth.Action(strings.ToLower(string(a))).Match(lower) {
			out = append(out, a)
		}
	}
	return out
}

// comparableActions returns the actions of a statement in the form that versitygw compares: the actions as in the
// policy, and the known actions that they match in another case.
func comparableActions(raw json.RawMessage) (json.RawMessage, error) {
	written, err := stringsOf(raw)
	if err != nil {
		return nil, err
	}
	out := make([]auth.Action, 0, len(written))
	for _, w := range written {
		if w == "*" {
			w = string(auth.AllActions) // all actions of S3 are all actions here
		}
		like := actionsLike(w)
		if auth.Action(w).IsValid() == nil || like == nil { // versitygw refuses an action that matches nothing
			out = append(out, auth.Action(w))
		}
		for _, a := range like {
			if !slices.Contains(out, a) && !a.Match(auth.Action(w)) {
				out = append(out, a)
			}
		}
	}
	return json.Marshal(out)
}

// Spell returns the policy of a bucket in a form that the S3 library versitygw accepts. In that form, actions are
// written in the letter case of versitygw. Conditions and services that versitygw does not know are left out, and
// fields such as NotAction have the name Action. Spell returns nil if versitygw accepts the policy as it is, or if the
// policy cannot be parsed. versitygw only checks the returned form, and evaluates requests by the rewritten policy in
// Rules.
func Spell(text []byte, bucket string) []byte {
	if len(text) > MaxSize {
		return nil
	}
	var doc map[string]json.RawMessage
	var statements []map[string]json.RawMessage
	if json.Unmarshal(text, &doc) != nil || json.Unmarshal(doc["Statement"], &statements) != nil {
		return nil
	}
	changed := false
	for _, s := range statements {
		changed = spellCondition(s) || changed
		changed = spellNegations(s, bucket) || changed
		if spelled, differs := spellPrincipal(s["Principal"]); differs {
			s["Principal"], changed = spelled, true
		}
		actions, err := stringsOf(s["Action"])
		if err != nil {
			continue
		}
		for i, a := range actions {
			like := actionsLike(a)
			if auth.Action(a).IsValid() == nil || like == nil {
				continue
			}
			// versitygw treats a pattern that matches an action on objects as an action on objects.
			at := max(0, slices.IndexFunc(like, func(a auth.Action) bool {
				on := a.IsObjectAction()
				return on != nil && *on
			}))
			actions[i], changed = string(like[at]), true
		}
		raw, err := json.Marshal(actions)
		if err != nil {
			return nil
		}
		s["Action"] = raw
	}
	if !changed {
		return nil
	}
	list, err := json.Marshal(statements)
	if err != nil {
		return nil
	}
	doc["Statement"] = list
	out, err := json.Marshal(doc)
	if err != nil {
		return nil
	}
	return out
}
