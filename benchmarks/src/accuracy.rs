pub(crate) fn print() -> anyhow::Result<()> {
    Ok(())
}
pub(crate) fn run(_: &str) -> anyhow::Result<()> {
    Ok(())
}
pub(crate) fn wait(_: &[String]) -> anyhow::Result<()> {
    Ok(())
}
