module smoke

go 1.25
