// The theme of the site, as a module of Hugo.
module github.com/outrigger/outrigger/site

go 1.26.0

require github.com/imfing/hextra v0.12.3
