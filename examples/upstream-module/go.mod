// SPDX-License-Identifier: Apache-2.0

module github.com/confidential-containers/cloud-api-adaptor/src/cloud-providers

go 1.26.0

require github.com/outrigger/outrigger v0.0.0

replace github.com/outrigger/outrigger => ../..
