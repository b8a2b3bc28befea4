// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	sim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

// azureSite is a subscription, and an AKS cluster whose tokens it trusts.
func azureSite(t *testing.T, w *walk) walkSite {
	cloud := sim.New(t, sim.Options{})
	token := w.outside("token", cloud.FederatedToken(t, sim.Claims{}))
	return walkSite{
		env: map[string]string{
			"AZURE_AUTHORITY_HOST": cloud.Server.URL, "AZURE_RESOURCE_MANAGER_ENDPOINT": cloud.Server.URL, "AZURE_CA_FILE": cloud.Server.CAFile,
			// The simulated token, which pods have at the setting's default.
			"AZURE_FEDERATED_TOKEN_FILE": token,
		},
		means: map[string]string{"outrigger": sim.ResourceGroup},
		image: smallVHD,
		calls: func() []string {
			return slices.DeleteFunc(slices.Sorted(maps.Keys(cloud.World.Calls())), func(call string) bool { return !strings.HasPrefix(call, "Microsoft.") })
		},
		left: func() []string { // images are in the walk's books
			return slices.DeleteFunc(booked(cloud.World), func(what string) bool { return strings.Contains(what, "/galleries/") })
		},
		tools: map[string][]answer{"az": azureAnswers(w)},
	}
}

func azureAnswers(w *walk) []answer {
	const nodes = "MC_outrigger"
	group := map[string]string{"-g": "outrigger"}
	query := func(flags map[string]string, query string) map[string]string {
		flags = maps.Clone(flags)
		flags["--query"] = query
		return flags
	}
	of := func(group string) map[string]string { return map[string]string{"-g": group} }
	assignment := map[string]string{"--assignee": sim.ClientID, "--role": "", "--scope": ""}
	return []answer{
		{words: "account show", flags: map[string]string{"--query": "", "-o": "tsv"}, says: func(flags map[string]string) (string, error) {
			return map[string]string{"id": sim.SubscriptionID, "tenantId": sim.TenantID}[flags["--query"]] + "\n", nil
		}},
		{words: "group create -n outrigger", makes: "group", flags: map[string]string{"-l": sim.Region}},
		{words: "role definition create", makes: "role", flags: map[string]string{"--role-definition": ""}, says: func(flags map[string]string) (string, error) {
			return "", w.grantRole(flags["--role-definition"])
		}},
		{words: "ad sp create-for-rbac", makes: "app " + sim.ClientID, flags: map[string]string{"--role": "Outrigger image import", "--scopes": "/subscriptions/" + sim.SubscriptionID + "/resourceGroups/outrigger"},
			says: prints(fmt.Sprintf(`{"appId": %q, "password": %q, "tenant": %q}`, sim.ClientID, sim.ClientSecret, sim.TenantID))},
		{words: "aks create", makes: "in group", flags: map[string]string{"-n": "outrigger", "-g": "outrigger", "--enable-oidc-issuer": "", "--outbound-type": "managedNATGateway"}},
		{words: "aks get-credentials", flags: group},
		{words: "aks show", flags: map[string]string{"-g": "outrigger", "-n": "outrigger", "--query": "", "-o": "tsv"}, says: func(flags map[string]string) (string, error) {
			return map[string]string{"oidcIssuerProfile.issuerUrl": sim.Issuer, "nodeResourceGroup": nodes}[flags["--query"]] + "\n", nil
		}},
		{words: "network vnet list", flags: query(of(nodes), "[0].name"), says: prints("cluster-net\n")},
		{words: "network vnet subnet list", flags: query(of(nodes), "[0].id"), says: prints(sim.SubnetID + "\n")},
		{words: "identity create", makes: "in group", flags: query(group, "clientId"), says: prints(sim.ClientID + "\n")},
		{words: "role assignment create", makes: "$role at $scope", flags: assignment},
		{words: "role assignment delete", removes: "$role at $scope", flags: assignment},
		{words: "identity federated-credential create", flags: map[string]string{"--issuer": sim.Issuer, "--audiences": sim.Audience, "--subject": ""}, says: func(flags map[string]string) (string, error) {
			if subject := "system:serviceaccount:" + namespace + ":" + flags["--name"]; flags["--subject"] != subject {
				return "", fmt.Errorf("subject %q", flags["--subject"])
			}
			return "", nil
		}},
		{words: "vm list", flags: query(group, ""), says: func(flags map[string]string) (string, error) {
			if flags["--query"] == "length(@)" {
				return "0\n", nil
			}
			return w.nameLines(flags)
		}},
		{words: "ad app delete", removes: "app $id"},
		{words: "group delete -n outrigger --yes", removes: "group", says: func(map[string]string) (string, error) {
			w.made = slices.DeleteFunc(w.made, func(what string) bool { return what == "in group" || strings.HasPrefix(what, "image ") })
			return "", nil
		}},
		{words: "role definition delete", removes: "role", flags: map[string]string{"--name": ""}},
	}
}

// grantRole notes what a custom role of Azure allows.
func (w *walk) grantRole(argument string) error {
	text, err := w.file(argument)
	if err != nil {
		return err
	}
	var role struct {
		Name                      string
		Actions, AssignableScopes []string
	}
	if err := json.Unmarshal([]byte(text), &role); err != nil {
		return err
	}
	if !slices.Equal(role.AssignableScopes, []string{"/subscriptions/" + sim.SubscriptionID}) {
		return fmt.Errorf("role %s is for %q", role.Name, role.AssignableScopes)
	}
	if role.Name != "Outrigger image import" {
		w.granted = append(w.granted, role.Actions...)
	}
	return nil
}

// smallVHD writes an empty disk as a VHD of fixed size: zeros, and a footer.
func smallVHD(path string) error {
	const size = 20 << 20 // the least that Azure takes
	footer := append([]byte("conectix"), make([]byte, 512-len("conectix"))...)
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(footer, size)
	return errors.Join(err, file.Close())
}
