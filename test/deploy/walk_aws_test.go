// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
)

const (
	awsIssuer = "oidc.eks.us-east-2.amazonaws.com/id/0123"
	awsRole   = "arn:aws:iam::123456789012:role/outrigger"
)

// awsSite is EC2 with its neighbours, and an EKS cluster whose tokens it trusts.
func awsSite(t *testing.T, w *walk) walkSite {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	subject := "system:serviceaccount:" + namespace + ":cloud-api-adaptor"
	cloud := sim.New(t, sim.Options{Issuer: &sim.Issuer{URL: "https://" + awsIssuer, Audience: "sts.amazonaws.com", Subject: subject, Role: awsRole, Key: &key.PublicKey}})
	server := cloudsim.Serve(t, cloud.Handler())
	token := w.outside("token", sim.Token(key, "https://"+awsIssuer, subject, "sts.amazonaws.com", time.Now().Add(time.Hour)))
	return walkSite{
		env:  map[string]string{"AWS_ENDPOINT_URL": server.URL, "AWS_ENDPOINT_URL_STS": server.URL, "AWS_CA_BUNDLE": server.CAFile, "AWS_EC2_METADATA_DISABLED": "true"},
		user: map[string]string{"AWS_ACCESS_KEY_ID": sim.KeyID, "AWS_SECRET_ACCESS_KEY": sim.Secret},
		means: map[string]string{
			"us-east-2": sim.Region, "/var/run/secrets/eks.amazonaws.com/serviceaccount/token": token,
		},
		image: func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
		calls: func() []string {
			return slices.DeleteFunc(slices.Sorted(maps.Keys(cloud.World.Calls())), func(call string) bool { return strings.HasPrefix(call, "sts:") })
		},
		left: func() []string { // images are in the walk's books
			return slices.DeleteFunc(booked(cloud.World), func(what string) bool { return strings.Contains(what, "ami-") || strings.Contains(what, "snap-") })
		},
		tools: map[string][]answer{"aws": awsAnswers(w, cloud), "eksctl": {
			{words: "create cluster", makes: "cluster $name", flags: map[string]string{"--region": "us-east-2", "--with-oidc": ""}},
			{words: "delete cluster", removes: "cluster $name", flags: map[string]string{"--region": "us-east-2"}},
		}},
	}
}

func awsAnswers(w *walk, cloud *sim.Cloud) []answer {
	const own, vpc, cluster, policy = sim.Group, "vpc-0123456789abcdef0", sim.Group2, "arn:aws:iam::123456789012:policy/outrigger"
	rule := map[string]string{"--protocol": "", "--port": "", "--source-group": ""}
	return []answer{
		{words: "eks update-kubeconfig", flags: map[string]string{"--name": "outrigger"}},
		{words: "eks describe-cluster", flags: map[string]string{"--name": "outrigger"}, says: prints(fmt.Sprintf(
			`{"cluster": {"resourcesVpcConfig": {"vpcId": %q, "clusterSecurityGroupId": %q}, "identity": {"oidc": {"issuer": "https://%s"}}}}`, vpc, cluster, awsIssuer))},
		{words: "sts get-caller-identity", flags: map[string]string{"--query": "Account", "--output": "text"}, says: prints("123456789012\n")},
		{words: "ec2 describe-subnets", flags: map[string]string{"--query": "Subnets[0].SubnetId", "--output": "text"}, says: prints(sim.SubnetA + "\n")},
		{words: "ec2 create-security-group", makes: "group " + own, flags: map[string]string{"--group-name": "", "--description": "", "--vpc-id": vpc}, says: prints(own + "\n")},
		{words: "ec2 authorize-security-group-ingress --group-id " + own, flags: rule},
		{words: "ec2 authorize-security-group-ingress --group-id " + cluster, flags: rule, makes: "rule $protocol $port ${source-group}"},
		{words: "ec2 revoke-security-group-ingress --group-id " + cluster, flags: rule, removes: "rule $protocol $port ${source-group}"},
		{words: "ec2 delete-security-group", removes: "group ${group-id}"},
		{words: "iam create-policy", makes: "policy " + policy, flags: map[string]string{"--query": "Policy.Arn"}, says: func(flags map[string]string) (string, error) {
			document, err := w.file(flags["--policy-document"])
			if err != nil {
				return "", err
			}
			return policy + "\n", w.grantStatements(document)
		}},
		{words: "iam create-role", makes: "role ${role-name}", flags: map[string]string{"--query": "Role.Arn"}, says: func(flags map[string]string) (string, error) {
			document, err := w.file(flags["--assume-role-policy-document"])
			if err != nil {
				return "", err
			}
			return awsRole + "\n", wantTrust(document)
		}},
		{words: "iam attach-role-policy", makes: "${policy-arn} of ${role-name}"},
		{words: "iam detach-role-policy", removes: "${policy-arn} of ${role-name}"},
		{words: "iam delete-role", removes: "role ${role-name}"},
		{words: "iam delete-policy", removes: "policy ${policy-arn}"},
		{words: "ec2 describe-instances", flags: map[string]string{"--query": ""}, says: func(flags map[string]string) (string, error) {
			if flags["--query"] == "length(Reservations)" {
				return "0\n", nil
			}
			return strings.Join(w.names(), "\t"), nil
		}},
		{words: "ec2 describe-images", flags: map[string]string{"--image-ids": ""}, says: func(flags map[string]string) (string, error) {
			return cloud.Stock.Images[flags["--image-ids"]].Snapshot + "\n", nil
		}},
		{words: "ec2 deregister-image", removes: "image ${image-id}"},
		{words: "ec2 delete-snapshot", flags: map[string]string{"--snapshot-id": ""}, says: func(flags map[string]string) (string, error) {
			if !strings.HasPrefix(flags["--snapshot-id"], "snap-") {
				return "", fmt.Errorf("snapshot %q", flags["--snapshot-id"])
			}
			return "", nil
		}},
	}
}

// wantTrust looks at the page's trust policy as AWS would.
func wantTrust(document string) error {
	var policy struct {
		Statement []struct {
			Principal struct{ Federated string }
			Condition struct{ StringEquals map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal([]byte(document), &policy); err != nil {
		return err
	}
	s := policy.Statement[0]
	want := fmt.Sprintf(`["system:serviceaccount:%[1]s:cloud-api-adaptor","system:serviceaccount:%[1]s:peerpod-ctrl"]`, namespace)
	compact := strings.Join(strings.Fields(string(s.Condition.StringEquals[awsIssuer+":sub"])), "")
	audience := string(s.Condition.StringEquals[awsIssuer+":aud"])
	if s.Principal.Federated != "arn:aws:iam::123456789012:oidc-provider/"+awsIssuer || audience != `"sts.amazonaws.com"` || compact != want {
		return fmt.Errorf("the role trusts others: %s", document)
	}
	return nil
}
