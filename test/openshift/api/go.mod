// The kinds of OpenShift that tests install, apart from the product's own
// modules.
module github.com/outrigger/outrigger/test/openshift

go 1.26.0

require github.com/openshift/api v0.0.0-20260715165912-72066cc9718b
