// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// behaviours are what an operator of cloud controller managers has to do as seen
// from outside, and where that is shown: a folder beside this one and the name of
// a test in it.
var behaviours = map[string][]string{
	"S1 the ClusterOperator is made or kept, with the release's version or unknown": {"controller S1/NoInfrastructure", "controller S1_S2_S3_Status", "status S1 made when missing"},
	"S2 CloudControllerOwner is removed":                                            {"controller S1_S2_S3_Status", "status S2 CloudControllerOwner"},
	"S3 reasons, messages and times":                                                {"controller S1_S2_S3_Status", "status S3 reasons, messages and times"},
	"S4 the version is written when operands are rolled out":                        {"controller S5/FromProgressingToAvailable", "controller EachPlatform"},
	"S5 Progressing, then Available, without flapping":                              {"controller S5/FromProgressingToAvailable", "controller EachPlatform"},
	"W1 a change of anything watched reconciles, a no-op does not": {
		"controller W1_Infrastructure", "controller W1_Proxy", "controller W1_APIServer", "controller W1_FeatureGate", "controller W1_KubeControllerManager",
		"controller W1_A5_ConfigMap", "controller W1_A5_Secret", "controller W1_ClusterOperator", "controller W1_NoOp", "controller W1_A2_A7_", "controller TestChanged", "configsync TestWhatWakes",
	},
	"A1 a second pass changes nothing":                                           {"controller A1/NothingToDo", "controller EachPlatform", "apply second-pass"},
	"A2 what is missing is made; each object's change counts":                    {"controller W1_A2_A7_", "apply one-fails"},
	"A3 users' labels stay, ours and specs come back":                            {"controller A3_Defect4_Labels", "controller W1/Drift", "apply user-labels"},
	"A4 ConfigMaps come back, binaryData too":                                    {"apply drift"},
	"A5 what pods read rolls them, what they do not does not":                    {"controller W1_A5_ConfigMap", "controller W1_A5_Secret", "apply config-hash"},
	"A6 another selector is another object; malformed keeps the old; finalizers": {"controller A6_Finalizer", "apply selector", "apply malformed", "apply finalizer"},
	"A7 drift of budgets, rights, Services and policies":                         {"controller W1_A2_A7_", "apply drift"},
	"A8 an unknown kind is a clear error":                                        {"apply unknown-kind", "bundle TestR3BadManifests"},
	"C1 when a Deployment is out":                                                {"controller C1_Deployment", "rollout TestDeployment"},
	"C2 a deadline that was exceeded degrades, not an older one":                 {"controller C2/Stalled", "controller C1_Deployment"},
	"C3 when a DaemonSet is out":                                                 {"controller C3_DaemonSet", "rollout TestDaemonSet"},
	"F1 what passes degrades after the threshold, not before":                    {"controller F1_F2_NotBefore", "controller F1/Transient", "configsync F1 a passing failure", "failure TestWindow"},
	"F2 success resets":                                                          {"controller F1_F2_NotBefore", "configsync F1 a passing failure", "failure TestWindow"},
	"F3 what only a change ends degrades at once, without a storm":               {"controller F3/Terminal", "controller F3_NoStorm", "configsync F3 a lasting failure"},
	"F4 authorities: an unrelated ConfigMap changes nothing, old windows end":    {"configsync F4 an unrelated ConfigMap", "failure TestWindow"},
	"G1 first sync, changes, own copy":                                           {"configsync G1 first sync"},
	"G2 managed before user, all keys, renamed":                                  {"configsync G2 managed before user"},
	"G3 AWS without a reference":                                                 {"configsync G3 AWS"},
	"G4 what is bad degrades at once and keeps the last good":                    {"configsync G4 what is bad"},
	"G5 platforms without one, and no Infrastructure":                            {"configsync G5 nothing to do", "controller G5/BareMetal", "controller S1/NoInfrastructure"},
	"G6 vSphere's managed copy":                                                  {"configsync G6 vSphere"},
	"T1 merged in order, restored, followed":                                     {"configsync T1 merged"},
	"T2 what is bad is reported":                                                 {"configsync T2 what is bad", "trustbundle TestMerge"},
	"T3 the cloud's authorities":                                                 {"configsync T3 the cloud's"},
	"T4 no Proxy":                                                                {"configsync T4 without Proxy"},
	"T5 no system bundle":                                                        {"configsync T5 without the system's"},
	"R1 kinds and names of each platform; none for others":                       {"controller R1_S5_A1_", "controller Defect8_NoManager", "bundles TestR1ObjectsOfEachPlatform", "bundles TestR1PlatformsWithoutAManager"},
	"R2 the rules of operands":                                                   {"lint TestR2EmbeddedBundlesKeepTheRules", "lint TestEachBrokenRuleIsRed"},
	"R3 bad manifests":                                                           {"bundle TestR3BadFolders", "bundle TestR3BadManifests"},
	"R4 each combination of a proxy":                                             {"controller R4_Proxy", "bundle TestR4Proxy"},
	"R5 images.json":                                                             {"controller R5_Images", "bundle TestR5Images"},
	"R6 an Infrastructure that does not say what it is":                          {"controller R6_Defect5_Infrastructure", "settings TestR6ClustersThatDoNotSayWhatTheyAre"},
	"R7 TLS":                               {"controller R7_TLS", "controller R7_Flags", "settings TestFlags", "settings TestAPIServer"},
	"X1 transformers":                      {"cloudconfig TestAWS", "cloudconfig TestAzure", "cloudconfig TestOpenStack", "cloudconfig TestVSphere"},
	"B1 render":                            {"render TestB1StaticPodsAndConfiguration", "render TestB1BadInput", "render TestB1BadDestination"},
	"B2 images by the names of containers": {"bundle TestB2ImagesByContainerName"},
	"I1 the injector":                      {"injector TestInject", "injector TestErrors", "injector TestRegressionMode"},
	"N1 a Node is initialized":             {"../ccm/command N1 a Node"},
	"N2 an outage deletes nothing":         {"../ccm/command N2 an outage"},
	"N3 what is gone is deleted when it is not Ready":              {"../ccm/command N3 an instance"},
	"N4 what is stopped is tainted":                                {"../ccm/command N4 a stopped"},
	"N5 controllers by name and alias":                             {"../ccm/command N5 controllers"},
	"L1 one leader, release at the end, a single node's durations": {"controller L1_Leader", "controller L1_Durations", "configsync L1 one works", "daemon TestFlags"},
}

// defects are those that operators of this kind have had, and the tests with which
// they do not come back.
var defects = map[string][]string{
	" 1 a message shows the memory of an error":                         {"status regression: the cause in a message"},
	" 2 the version is said before anything runs":                       {"configsync regression: versions are not written", "controller S5/FromProgressingToAvailable"},
	" 3 an unrelated ConfigMap makes the authorities available":         {"configsync F4 an unrelated ConfigMap"},
	" 4 a label that is removed is progress for ever":                   {"controller A3_Defect4_Labels", "apply user-labels"},
	" 5 parts of an Infrastructure are missing, and it panics":          {"controller R6_Defect5_Infrastructure", "cloudconfig TestRegressionFailureDomainOfUnknownServer", "cloudconfig TestRegressionMissingStatus", "configsync regression: a failure domain"},
	" 6 another namespace fails":                                        {"bundle TestNamespaceEverywhere", "bundles TestNothingOfAnotherNamespace", "controller operands = \"clouds\""},
	" 7 a blank line after a certificate loses the bundle":              {"trustbundle TestRegressionTextAfterTheLastCertificate", "trustbundle TestBlankLinesAndCommentsWithin"},
	" 8 available, and nobody comes":                                    {"controller Defect8_NoManager"},
	" 9 what a former platform had stays":                               {"controller Pruning", "controller EachPlatform", "apply prune-after-crash"},
	"10 nothing serves its health, Nodes are not looked at":             {"bundles TestAllManagersServeTheirHealth", "watchdog TestDiagnose"},
	"11 a missing Secret is told after ten minutes":                     {"controller MissingConfiguration", "controller Defect19_LateCredentials"},
	"12 without config-sync nothing is said":                            {"controller WithoutConfigSync"},
	"13 drift that is not seen":                                         {"apply drift", "apply aggregated", "apply role-ref", "controller W1_A2_A7_"},
	"14 feature gates: unreadable, unknown, missing":                    {"controller Defect14_Gates", "controller Defect14_WithoutGates", "controller TestRegressionGatesAreWaitedFor", "configsync regression: gates"},
	"15 the injector: a flag, a newline, null, a mode":                  {"injector TestInject", "injector TestErrors", "injector TestRegressionMode"},
	"16 watches: namesakes, errors":                                     {"controller Defect16_Namesake", "controller Defect16_Unwatchable", "controller TestRegressionWatchErrorsAreTold"},
	"17 two programs rewrite one status":                                {"status regression: two writers"},
	"18 cloud-conf is written for each event; one path for all systems": {"configsync G1 first sync", "trustbundle TestSystem"},
	"19 who waits for the Secret waits for ever":                        {"controller Defect19_LateCredentials"},
}

// TestEachBehaviourHasItsTest: the lists name tests that are there.
func TestEachBehaviourHasItsTest(t *testing.T) {
	read := map[string][]byte{}
	for _, list := range []map[string][]string{behaviours, defects} {
		for what, tests := range list {
			for _, test := range tests {
				folder, name, _ := strings.Cut(test, " ")
				if read[folder] == nil {
					read[folder] = testsOf(t, folder)
				}
				if !bytes.Contains(read[folder], []byte(name)) {
					t.Errorf("%s: folder %s has no test %q", what, folder, name)
				}
			}
		}
	}
}

// TestPageOfExpectations: the page for whoever knows OpenShift's own operator has each
// behaviour, and the tests that it names are there.
func TestPageOfExpectations(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/ccm-operator-openshift.md")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || !strings.Contains(cells[3], "`") {
			continue
		}
		rows++
		for _, id := range regexp.MustCompile(`\b[A-Z][0-9]+\b`).FindAllString(cells[0], -1) {
			said[id] = true
		}
		_, folder, _ := strings.Cut(cells[3], "`")
		folder, names, _ := strings.Cut(folder, "` ")
		for name := range strings.SplitSeq(names, ", ") {
			if !bytes.Contains(testsOf(t, folder), []byte(strings.TrimSpace(name))) {
				t.Errorf("%s: folder %s has no test %q", strings.TrimSpace(cells[0]), folder, name)
			}
		}
	}
	if rows < 40 {
		t.Errorf("%d rows, which are fewer than there were: is the table still read?", rows)
	}
	// These are not OpenShift's operator's, but rules for operands and Nodes, or are in
	// the rows of names.
	elsewhere := regexp.MustCompile(`^(R2|N[1-5]|L1|W1) `)
	for what := range behaviours {
		if id, _, _ := strings.Cut(what, " "); !said[id] && !elsewhere.MatchString(what) {
			t.Errorf("docs/ccm-operator-openshift.md says nothing of %s", what)
		}
	}
}

// testsOf are the texts of a folder's tests except for this file's.
func testsOf(t *testing.T, folder string) (all []byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no tests: %v", folder, err)
	}
	for _, f := range files {
		if filepath.Base(f) == "acceptance_test.go" {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	return all
}
