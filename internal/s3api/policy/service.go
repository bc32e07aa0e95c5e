// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/iam/document"
)

// LoggingService is the service principal that delivers server access logs.
const LoggingService = "logging.s3.amazonaws.com"

// knownServices are the services that policies of S3 buckets name in AWS, without the end of the name. A name outside
// of this list is refused, as AWS refuses it: a misspelled service in a Deny would deny nothing.
var knownServices = []string{
	"access-analyzer", "apigateway", "appflow", "athena", "aps", "backup", "batch", "bedrock", "billingreports",
	"bcm-data-exports", "cloudformation", "cloudfront", "cloudtrail", "codebuild", "codedeploy", "codepipeline",
	"config", "config-conforms", "connect", "databrew", "datasync", "delivery.logs", "dms", "dynamodb", "ec2", "ecs",
	"ecs-tasks", "eks", "elasticache", "elasticloadbalancing", "elasticmapreduce", "events", "export.rds", "firehose",
	"glue", "guardduty", "iam", "imagebuilder", "inspector2", "iot", "kinesis", "kms", "lakeformation", "lambda", "lex",
	"logdelivery.elasticloadbalancing", "logging.s3", "logs", "macie", "mediaconvert", "network-firewall", "pinpoint",
	"quicksight", "rds", "redshift", "rekognition", "replication.ecr", "route53", "s3", "sagemaker", "scheduler",
	"securityhub", "securitylake", "ses", "sns", "sqs", "ssm", "states", "storage-lens.s3", "storagegateway",
	"textract", "transcribe", "transfer", "vmie", "vpc-flow-logs", "vpc-lattice", "waf", "wafv2", "workspaces",
}

// serviceForm finds the parts of a service principal: its service, and its region if the name has one.
var serviceForm = regexp.MustCompile(
	`^([a-z0-9-]+(?:\.[a-z0-9-]+)*?)(?:\.([a-z]{2}(?:-[a-z]+)+-[0-9]))?\.amazonaws\.com$`)

// servicesOf reads one or more service principals.
func servicesOf(raw []byte) ([]string, error) {
	names, err := stringsOf(raw)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		parts := serviceForm.FindStringSubmatch(name)
		if parts == nil || !slices.Contains(knownServices, parts[1]) {
			return nil, overlookedf("service %.128q, expected a service of AWS such as %s", name, LoggingService)
		}
	}
	return names, nil
}

// coversService reports whether a statement applies to requests of a service. A whole AWS account has no services.
func (s *statement) coversService(service string) bool {
	named := slices.Contains(s.services, service) || slices.Contains(s.principals, "*")
	return named != s.notPrincipal
}

// DecideService returns the decision of the bucket's policy for a request of a service, such as LoggingService. The
// service asks for an action on a key. The values of the request hold the condition keys aws:SourceArn and
// aws:SourceAccount. DecideService returns document.None if the bucket has no policy or no statement applies. If this
// server does not understand a restriction of the policy, DecideService returns document.Deny. A public access block
// does not limit services, as in S3.
func (r *Rules) DecideService(service string, action auth.Action, key string,
	request *document.Request) document.Decision {
	if r.Policy == nil {
		return document.None
	}
	if r.unread {
		return document.Deny
	}
	kept := resolvable{Version: r.parsed.version, Statement: []resolvableStatement{}}
	for i := range r.parsed.statements {
		s := &r.parsed.statements[i]
		if s.fault != nil || !s.coversService(service) {
			continue
		}
		rewritten, covers, err := s.rewrite(r.Of.Name)
		if err != nil {
			return document.Deny // cannot happen: parse has checked the statement
		}
		rewritten.Principal = everybody
		if !covers || rewritten.Condition != nil && !r.holds(&rewritten, request, false) {
			continue
		}
		rewritten.Condition = nil
		if rewritten.NotResource != nil {
			rewritten.placeKeys(r.Of.Name, rewritten.coversKey(r.Of.Name, key))
		}
		kept.Statement = append(kept.Statement, rewritten)
	}
	allowed := func(doc resolvable) bool {
		text, err := json.Marshal(doc)
		return err == nil && auth.VerifyPublicBucketPolicy(text, r.Of.Name, key, nil, Comparable, action) == nil
	}
	if allowed(kept) {
		return document.Allow
	}
	// If the policy denies even beside a statement that allows everything, a statement denies the request.
	kept.Statement = append(kept.Statement, allowEverything(r.Of.Name))
	if !allowed(kept) {
		return document.Deny
	}
	return document.None
}

// allowEverything returns a rewritten statement that allows everything in a bucket to everybody.
func allowEverything(bucket string) resolvableStatement {
	s := resolvableStatement{Effect: "Allow", Principal: everybody, Action: json.RawMessage(`"s3:*"`)}
	s.setResources([]string{auth.ResourceArnPrefix + bucket, keysARN(bucket, byBytes, "*")})
	return s
}

// spellPrincipal returns a Principal element without services, which versitygw does not know. The second result is
// false if the element names no service. If nothing else is named, the element becomes "*", which versitygw accepts.
func spellPrincipal(raw json.RawMessage) (json.RawMessage, bool) {
	var kinds map[string]json.RawMessage
	if !strings.HasPrefix(string(raw), "{") || json.Unmarshal(raw, &kinds) != nil || kinds["Service"] == nil {
		return raw, false
	}
	if kinds["AWS"] == nil {
		return everybody, true
	}
	return kinds["AWS"], true
}
